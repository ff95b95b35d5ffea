// Where tensors lie: hands out addresses in the engine's arena, by the active plan where the caller
// names a placement, by best fit elsewhere, on pages of their own while profiling. What begins
// under a plan and has no place in it shares no granule with what was there before the plan, for
// that may be away. Knows every live tensor by address. Not thread-safe; the session locks.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "alloc/address_table.h"
#include "alloc/granule_heap.h"
#include "alloc/heap.h"
#include "engine/engine.h"
#include "sentinel/plan.h"

namespace sentinel {

// What a plan asks of the space, compiled for the fast path. A slot that has its granules to itself
// keeps no address: what begins gets the place of what died last of the same number of granules,
// where memory still is, as in any caching allocator. The plan's moves name tensors, not addresses.
struct PlannedSlot {
  std::uint64_t offset = 0;  // in the plan's region
  std::uint64_t bytes = 0;
  bool placed = false;    // the plan gives it an address
  bool shared = false;    // its addresses may be another tensor's at another time of the step
  bool reserved = false;  // they are of the plan's pool for what lives briefly
  bool brief = false;     // ends in the op that makes it
};

class Space {
 public:
  // `budget`: bytes of fast memory that tensors will have; 0: not known.
  explicit Space(Engine&, std::uint64_t budget = 0);

  // Reserves addresses for a plan's placements; they are kept for the life of the process, since
  // tensors may lie there when another plan becomes the active one. `moves`: tensors leave under
  // it. Throws Error.
  std::uint32_t add_plan(std::vector<PlannedSlot> slots, std::uint64_t region_bytes,
                         bool moves = true);
  void activate(std::uint32_t plan);
  bool placed(std::uint32_t plan, std::uint32_t slot) const {
    return plans_[plan].slots[slot].placed;
  }
  // 0: nobody lies there now, and the next one may lie elsewhere.
  std::uintptr_t address_of(std::uint32_t plan, std::uint32_t slot) const {
    return plans_[plan].address[slot];
  }

  // Null when the arena's addresses are used up, or where the engine has no memory. `slot`: the
  // placement it has in the plan, or LiveTensor::kUnplanned; a placement that is still in use, or
  // overlaps one that is, is not given twice: the tensor then lies elsewhere. So does a tensor that
  // is too large for its placement; the plan's moves find it all the same.
  LiveTensor* allocate(std::uint64_t bytes, std::uint32_t slot, bool own_pages);
  // The tensor that lies in slot `from` is what the plan has in `to` from now on, if nobody lies in
  // that and both take their places from the same ranges.
  void hand_over(std::uint32_t plan, std::uint32_t from, std::uint32_t to);
  // The tensor that was there. The address must be a live tensor's.
  LiveTensor release(std::uintptr_t address);

  LiveTensor* find(const void* address) {
    return table_.find(reinterpret_cast<std::uintptr_t>(address));
  }
  AddressTable& table() { return table_; }
  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t births() const { return births_; }
  bool out_of_addresses() const { return out_of_addresses_; }  // why the last one was refused
  std::uint64_t most_live_bytes() const { return most_live_bytes_; }
  void reset_most_live_bytes() { most_live_bytes_ = live_bytes_; }

 private:
  // Ranges of so many granules that nobody lies in, those with memory last, by their deaths.
  using Ranges = std::deque<std::uintptr_t>;
  static constexpr std::uint32_t kFixed = ~0u;

  struct Planned {
    std::vector<PlannedSlot> slots;
    std::vector<bool> used;               // per slot
    std::vector<std::uintptr_t> address;  // per slot
    std::vector<std::uint32_t>
        ranges_of;  // per slot: the ranges it takes its place from, or kFixed
    std::vector<Ranges> ranges;
    // The shared part is cut where any of its slots begins or ends: whether two slots overlap is
    // then a matter of few bits, however large they are.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> cells;  // per slot: first, and one past
    std::vector<std::uint64_t> cells_in_use;                     // one bit per cell
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pools;  // reserved: offset, bytes
    std::uintptr_t region = 0;
    bool moves = true;

    void cut();
    void join_pools();
    void float_alone(std::uint64_t granule);
    bool claim(std::uint32_t slot, std::uint64_t bytes);
    // The slot's tensor lies elsewhere, and the plan's moves find it there. False: there is one.
    bool lend(std::uint32_t slot, std::uintptr_t elsewhere);
    void take_back(std::uint32_t slot);
    void unclaim(std::uint32_t slot, bool memory);
  };

  void lay_in_heap(LiveTensor&, bool own_pages);  // its address is 0 where none is left
  void give_back(const LiveTensor&, bool memory);

  Engine& engine_;
  Heap heap_;
  GranuleHeap late_heap_;
  AddressTable table_;
  std::uint64_t births_ = 0, live_bytes_ = 0, most_live_bytes_ = 0;
  std::size_t small_pages_ = 0;  // live tensors below a page that have one of their own
  std::size_t most_small_pages_;
  bool out_of_addresses_ = false;
  std::vector<Planned> plans_;
  std::uint32_t active_ = LiveTensor::kUnplanned;
};

}  // namespace sentinel
