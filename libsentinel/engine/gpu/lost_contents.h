// Contents that are given up and made again behind the same addresses, and how the host sees a
// device's bytes and sets them, where somebody has to compare what was made.
//
// A block whose only tensor is given up leaves without a copy. To fill it again is a copy on the
// device, in the order of the stream on which the calling thread computes: nobody waits for it. No
// kernel waits for contents either, so whoever names what an op uses has it made again before.
//
// Takes the engine's lock. What is noexcept ends the process where the driver refuses.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "engine/engine.h"
#include "engine/gpu/pool/demand_fetches.h"
#include "engine/gpu/pool/keep_all.h"

namespace sentinel::gpu {

class LostContents final : public DeviceContents {
 public:
  LostContents(pool::Monitor&, pool::Streams&, pool::Blocks&, pool::Places&, pool::Departures&,
               pool::DemandFetches&, const pool::KeepAll&);

  // Nothing is given up but for him.
  void remake_with(Remaker* remaker) { remaker_ = remaker; }
  // As of Engine. `launching`: an op is about to be launched, whose operands stay.
  std::uint64_t discard(std::uintptr_t address, std::uint64_t bytes, Engine::Ends,
                        bool launching) noexcept;
  // Without a source it has memory, and whatever lies there.
  void refill(std::uintptr_t address, std::uint64_t bytes, const void* source) noexcept;
  // With the engine's lock held: a tensor that begins there is no more.
  void ends(std::uintptr_t address, pool::Index index) {
    if (blocks_[index].given_up == address) blocks_[index].given_up = 0;
  }

  void read(std::uintptr_t address, std::uint64_t bytes, void* to) noexcept override;
  void write(std::uintptr_t address, std::uint64_t bytes, const void* from) noexcept override;
  void used_here(std::uintptr_t address, std::uint64_t bytes) noexcept override;

  std::uint64_t discarded_bytes() const { return discarded_bytes_; }
  std::uint64_t refilled_bytes() const { return refilled_bytes_; }

 private:
  using Index = pool::Index;
  using State = pool::State;

  bool may_go(const pool::ChunkBlock&, bool launching) const;
  void give_up(Index, std::uintptr_t address, pool::Together&);
  bool make_room(Index first, Index past, std::uintptr_t address, pool::Guard&);
  void fill(Index first, Index past, std::uintptr_t address, std::uint64_t bytes,
            const void* source);
  void bring(std::uintptr_t address, std::uint64_t bytes, pool::Guard&);

  pool::Monitor& monitor_;
  pool::Streams& streams_;
  pool::Blocks& blocks_;
  pool::Places& places_;
  pool::Departures& departures_;
  pool::DemandFetches& demand_;
  const pool::KeepAll& keep_all_;
  std::atomic<Remaker*> remaker_ = nullptr;
  std::uint64_t discarded_bytes_ = 0, refilled_bytes_ = 0;
};

}  // namespace sentinel::gpu
