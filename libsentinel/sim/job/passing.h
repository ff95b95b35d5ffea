// The operands of the task under way that fast memory does not hold. Each passes through it while
// the task computes, in, out or both, one after the other each way. What lies in a byte-addressable
// tier stays there, and is used where it lies.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "sim/fluid/commons.h"
#include "sim/job/op_uses.h"
#include "sim/job/residence.h"

namespace sentinel::sim {

class Passing {
 public:
  Passing(Commons&, Account&, Residence&);

  void begin();  // of a task, of which nothing passes yet
  void add(const Operand&);
  bool contains(StorageId s) const { return is_added_[s.index()]; }
  void start();       // to transfer what was added since
  bool over() const;  // whether all of it has passed
  void end();         // it lies in slower tiers from now on

 private:
  struct Way {
    std::deque<StorageId> queue;
    bool busy = false;
  };
  void next(Way&, bool out);

  Commons& commons_;
  Account& account_;
  Residence& residence_;
  std::vector<Operand> added_;
  std::vector<bool> is_added_;  // per storage
  std::size_t started_ = 0;
  Way in_, out_;
};

}  // namespace sentinel::sim
