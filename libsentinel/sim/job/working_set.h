// The working set of the task under way: its operands and its scratch, from the first request until
// the task has computed. Each operand comes to fast memory, is used where it lies, or is streamed.
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
  // What the task takes alone on the machine, with what passes through: `alone_us` is its own time.
  double compute_us(double alone_us) const;
  void note_uses() const;  // into the timeline: the pages that the task opened, by where they lay
  void release();

 private:
  bool ready(const Operand&) const;
  void stream(const Operand&);
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
  std::vector<Operand> streamed_;
  std::vector<bool> is_streamed_;  // per storage
  Wakeful wakeful_;                // what is ready sleeps, too
  std::vector<bool> is_ready_;     // per operand, when it was looked at
  std::size_t unready_ = 0;
  // Bytes that the unready ones lack, as of when Residence::Changes::holdings was so.
  std::optional<std::uint64_t> claim_;
  std::uint64_t holdings_ = 0;
  double in_place_us_ = 0;  // use of tensors left in a slow tier
  bool scratch_held_ = false;
  std::uint64_t scratch_streamed_ = 0;  // of the current op, held nowhere
};

}  // namespace sentinel::sim
