// The working set of the task under way: its operands and its scratch, from the first request until
// the task has computed. Each operand comes to fast memory, is used where it lies, or is streamed:
// it passes through while the task computes, in, out or both, as transfers like any other.
//
// An op whose operands do not fit together computes while those come that do, and the others pass.
//
// All operands are pinned from begin() to release(), so none of them is a victim. It knows nothing
// of the order of tasks, and of the result only what it counts in the record.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sentinel/policy.h"
#include "sim/fluid/commons.h"
#include "sim/job/op_uses.h"
#include "sim/job/orders.h"
#include "sim/job/passing.h"
#include "sim/job/residence.h"
#include "sim/job/step_record.h"
#include "sim/job/tasks.h"
#include "sim/job/wakeful.h"

namespace sentinel::sim {

class WorkingSet {
 public:
  WorkingSet(Controller&, Commons&, Account&, Residence&, const OpUses&, Orders&, StepRecord&);

  void begin(const Task&);  // which stays where it is until release()
  bool acquire();           // asks for what is missing; whether all is there
  void stream_rest();       // what found no room although nothing else is left passes through
  // Whether the task computes without waiting for what acquire() has asked for.
  bool overflows() const { return overflows_; }
  // Whether its operands need more than is free or becomes free.
  bool lacks_room();
  bool complete() const { return scratch_held_ && unready_ == 0; }
  // What is used in a slow tier makes the task compute so much longer.
  double in_place_us() const { return in_place_us_; }
  void let_pass() { passing_.start(); }            // what is streamed and has not begun to
  bool passed() const { return passing_.over(); }  // whether all of it has
  void note_uses() const;  // into the timeline: the pages that the task opened, by where they lay
  void release();

 private:
  void overflow();
  bool ready(const Operand&) const;
  void look_at(std::uint32_t operand);
  std::uint64_t claim();
  void need(const Operand&);
  void make(const Operand&);
  bool use_in_place(const Operand&);
  void fetch(StorageId);

  Controller& controller_;
  Commons& commons_;
  const Machine& machine_;
  Account& account_;
  Residence& residence_;
  const OpUses& uses_;
  Orders& orders_;
  StepRecord& record_;

  const Task* task_ = nullptr;
  double begin_us_ = 0;
  Passing passing_;
  bool overflows_ = false;
  Wakeful wakeful_;             // what is ready sleeps, too
  std::vector<bool> is_ready_;  // per operand, when it was looked at
  std::size_t unready_ = 0;
  // Bytes that the unready ones lack, as of when Residence::Changes::holdings was so.
  std::optional<std::uint64_t> claim_;
  std::uint64_t holdings_ = 0;
  double in_place_us_ = 0;  // use of tensors left in a slow tier
  bool scratch_held_ = false;
  std::uint64_t scratch_streamed_ = 0;  // of the current op, held nowhere
};

}  // namespace sentinel::sim
