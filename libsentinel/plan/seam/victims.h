// Blocks in fast memory by age, for pagers that choose victims: the oldest that nothing holds.
//
// Age is a stamp given on arrival and renewed at will (last use, or not at all for "least recently
// migrated"). A block may be held several times; blocks that the running kernel uses are held until
// it ends. Every operation takes constant or logarithmic time, amortized.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "sentinel/paging.h"

namespace sentinel::plan {

class Victims {
 public:
  void arrive(BlockId);  // stamped now
  void leave(BlockId);
  void renew(BlockId);  // stamped now

  void hold(BlockId);
  void release(BlockId);  // pairs up with hold()
  void use(BlockId);      // held until end_use()
  void end_use();

  std::optional<BlockId> take();       // the oldest that is not held, removed
  std::optional<BlockId> take_used();  // of those used the first that is present, removed

 private:
  struct State {
    std::uint64_t stamp = 0;
    std::uint32_t holds = 0;
    bool present = false;
    bool listed = false;  // in the heap, perhaps with an older stamp
  };
  using Entry = std::pair<std::uint64_t, std::uint32_t>;  // stamp, block

  State& state(BlockId);
  void list(BlockId, State&);

  std::vector<State> states_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
  std::vector<BlockId> used_;
  std::size_t next_used_ = 0;  // that take_used() tries
  std::uint64_t now_ = 0;
};

}  // namespace sentinel::plan
