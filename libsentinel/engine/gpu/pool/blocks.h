// All granules of the arena, and the orders in which their memory is taken: those that live by
// their use, and those that died. It moves nothing and calls no driver.
//
// The engine's lock guards it; the clock of ops is read without.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "engine/gpu/pool/block.h"
#include "engine/gpu/pool/pager_seat.h"

namespace sentinel::gpu::pool {

class Blocks {
 public:
  using Order = std::list<Index>;

  Blocks(std::uint64_t granule, std::uint64_t bytes, const std::atomic<std::uint64_t>& clock);
  void lie_at(std::uintptr_t arena) { arena_ = arena; }

  std::uint64_t granule() const { return granule_; }
  Index size() const { return static_cast<Index>(blocks_.size()); }
  ChunkBlock& operator[](Index index) { return blocks_[index]; }
  const ChunkBlock& operator[](Index index) const { return blocks_[index]; }
  std::uintptr_t at(Index index) const { return arena_ + index * granule_; }
  void* memory(Index index) const { return reinterpret_cast<void*>(at(index)); }
  // The first that the range lies in, and one past the last.
  std::pair<Index, Index> of(std::uintptr_t address, std::uint64_t bytes) const;
  bool has_memory(Index index) const {
    const State state = blocks_[index].state;
    return state != State::empty && state != State::absent && state != State::lost;
  }
  std::vector<std::uintptr_t> mapped() const;

  PagerSeat& pager() { return pager_; }
  void page(std::unique_ptr<Pager>);

  void enter(Index);  // what has memory and contents may be used, and leave
  void leave(Index);  // neither any more
  void use(Index);    // by the op that runs
  void die(Index);
  void revive(Index);
  void pin(Index);
  void unpin(Index);
  void change_pools(Index, int change);

  // By the op that runs.
  std::uint64_t now() const { return clock_.load(std::memory_order_relaxed); }
  bool in_use(const ChunkBlock& b) const { return b.used == now(); }
  bool may_go(const ChunkBlock& b) const { return b.pins == 0 && !in_use(b); }
  bool any_may_go();
  std::optional<Index> choose_victim();
  std::optional<Index> paged_victim(bool pressing);

  Order& dead() { return dead_; }                               // but those in a pool
  Order& next_dead() { return dead_.empty() ? idle_ : dead_; }  // those in a pool last
  bool none_dead() { return next_dead().empty(); }
  std::uint64_t all_dead() const { return dead_.size() + idle_.size(); }

  void went_away(bool lives) { away_ += lives; }
  void came_back(bool was_away) { away_ -= was_away; }
  std::uint64_t away() const { return away_; }
  void begins_to_arrive() { ++arriving_; }
  void has_arrived() { --arriving_; }
  std::uint64_t arriving() const { return arriving_; }

 private:
  Order& dead_beside(const ChunkBlock& b) { return b.pools > 0 ? idle_ : dead_; }
  Order::iterator longest_unused();

  const std::uint64_t granule_;
  std::uintptr_t arena_ = 0;
  const std::atomic<std::uint64_t>& clock_;
  std::vector<ChunkBlock> blocks_;
  Order by_use_;                // used longest ago first
  Order dead_, idle_;           // died longest ago first; those in a pool
  std::uint64_t away_ = 0;      // blocks that are absent or lost
  std::uint64_t arriving_ = 0;  // blocks that the device fills from the file
  PagerSeat pager_;
};

}  // namespace sentinel::gpu::pool
