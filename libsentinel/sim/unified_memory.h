// Unified memory as the driver runs it (DeepUM, ASPLOS 2023, sections 2.3 and 3.1): blocks of 2 MiB
// that migrate between fast memory and the tiers below as kernels fault on them and as a pager
// asks.
//
// A block is in one place as a whole: its pages that were ever touched are present, absent, or on
// the way. A fault on a page nobody touched before populates it without transfer. Faulted pages are
// handled in batches of Machine::fault_batch_bytes, each of Machine::fault_us; a batch may cover
// several blocks. The fault queue is served in order, a few blocks at a time, and before the queue
// of the pager's commands, which has one transfer in flight for each slower tier.
//
// Evicted blocks go to the fastest tier below that has room. Nothing keeps a copy: a block that
// migrates back gives up its place there, and leaving it is written again, changed or not, as the
// driver does. Where the pager does not evict ahead of need, eviction is part of handling the
// fault: first room is made, then the pages come.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "sentinel/paging.h"
#include "sim/address_range.h"
#include "sim/fluid/commons.h"

namespace sentinel::sim {

class UnifiedMemory final : public BlockView {
 public:
  // Throws Error where fast memory holds less than a block.
  UnifiedMemory(Commons&, Pager&, std::uint64_t fast_bytes);

  // What the framework's allocator has handed out.
  void hand_out(const AddressRange&);
  void take_back(const AddressRange&);

  void begin_kernel() { batch_left_ = 0; }
  void touch(const AddressRange&);              // by the kernel that begins
  bool served() const { return needed_ == 0; }  // all it touched has come
  void settle();                                // starts what can start

  bool present(BlockId) const override;

  Account& account() { return account_; }

  // Since the last call.
  struct Counts {
    std::uint64_t demand_faults = 0, evictions = 0;  // batches; blocks written out
    Paging paging;
  };
  Counts take_counts();

 private:
  enum class State : std::uint8_t { absent, arriving, resident, leaving };
  struct UnifiedBlock {
    std::array<std::uint64_t, kBlockPages / 64> mask{};  // pages touched so far
    std::uint16_t touched = 0;                           // how many
    std::uint16_t held = 0;                              // pages of fast memory
    std::uint16_t stored = 0;                            // pages with contents in `tier`
    std::uint8_t tier = 0;                               // 0: nowhere below
    State state = State::absent;
    bool needed = false;       // the running kernel waits for it
    std::uint32_t active = 0;  // allocations in it
    TensorId tensor;           // that touched it last
  };
  struct Fault {
    BlockId block;
    double handling_us;
  };
  struct Lane {  // transfers between fast memory and one tier, in one direction
    std::vector<BlockId> queue;
    bool busy = false;
    double free_since_us = -1;
  };

  UnifiedBlock& block(BlockId b) { return blocks_[b.index()]; }
  const UnifiedBlock& block(BlockId b) const { return blocks_[b.index()]; }
  template <class Visit>
  void for_blocks(const AddressRange&, Visit);
  static bool complete(const UnifiedBlock& b) {
    return b.state == State::resident && b.held == b.touched;
  }
  static std::uint64_t missing_bytes(const UnifiedBlock& b) {
    return (b.touched - b.held) * kPageBytes;
  }
  void fault(BlockId, std::uint64_t pages);
  double latency_us(std::uint32_t tier, const Lane&) const;
  bool make_room(std::uint64_t bytes, bool pressing);
  void evict(BlockId);
  void start_writes();
  void written(std::uint32_t tier, const std::vector<BlockId>&);
  std::size_t group() const;
  void serve_faults();
  void fetch_ahead();
  void bring(const std::vector<BlockId>&, double delay_us, Lane&);
  void arrived(const std::vector<BlockId>&, Lane&);

  Commons& commons_;
  Account& account_;
  Pager& pager_;
  std::vector<UnifiedBlock> blocks_;
  std::deque<Fault> faults_;
  std::vector<BlockId> commands_;
  Lane demand_;
  std::vector<Lane> ahead_, out_;    // per tier
  std::uint64_t leaving_bytes_ = 0;  // held by blocks that leave
  std::uint64_t needed_ = 0;         // blocks
  std::uint64_t batch_left_ = 0;     // bytes that the last fault batch has room for
  std::uint64_t conflicts_ = 0;      // of the pager, when counts were taken last
  Counts counts_;
};

}  // namespace sentinel::sim
