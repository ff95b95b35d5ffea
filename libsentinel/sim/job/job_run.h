// One job of a simulation: its ops and replays in order, what each waits for and what it costs.
//
// It is the sequence alone: arrive, then for each op its tasks, each acquired and computed, then
// the step's end. Tensors' places are Residence's, the current task's operands WorkingSet's, moves
// Orders', and figures StepRecord's.
#pragma once

#include <cstdint>

#include "sim/fluid/commons.h"
#include "sim/fluid/simulation.h"
#include "sim/job/computation.h"
#include "sim/job/noisy_times.h"
#include "sim/job/op_uses.h"
#include "sim/job/orders.h"
#include "sim/job/residence.h"
#include "sim/job/step_record.h"
#include "sim/job/tasks.h"
#include "sim/job/working_set.h"

namespace sentinel::sim {

class JobRun {
 public:
  JobRun(const Job&, Commons&, const SimOptions&, std::size_t index);
  JobRun(const JobRun&) = delete;  // its parts know one another
  JobRun& operator=(const JobRun&) = delete;

  // Starts and ends what can start and end now, until something has to be waited for. A job that
  // found too little room may go on once another one has given some up.
  void proceed();

  bool done() const { return state_ == State::done; }
  bool computes() const { return state_ == State::computing; }
  // For tensors or room: before it computes, beside that, or when it has computed.
  bool waits() const {
    return state_ == State::acquiring || (in_task() && !working_set_.complete());
  }
  bool transfers() const { return account_.flying > 0; }  // something of its own is under way

  double left_us() const { return computation_.left_us(); }  // of compute alone on the machine
  void compute(double us) { computation_.advance(us); }
  double next_event_us() const;  // its arrival, or a move that was put off

  StorageId longest_unused() const { return residence_.longest_unused(); }
  void put_out(StorageId);  // for want of room
  // What found no room although nothing else is left passes through.
  void stream_rest() { working_set_.stream_rest(); }

  double end_us() const { return record_.end_us(); }
  SimResult take_result() { return record_.take(); }

 private:
  // completing: has computed, and waits for what was to come or pass meanwhile.
  enum class State : std::uint8_t { arriving, between, acquiring, computing, completing, done };

  void populate();
  void begin_step();
  void end_step();
  void begin_op();
  double remaking_us(const Task&) const;
  bool in_task() const { return state_ == State::computing || state_ == State::completing; }
  void make_way();
  void begin_computation();
  void end_computation();
  void end_task();
  void drop(const Task&);
  void end_op();

  const Job job_;
  Controller& controller_;
  Commons& commons_;
  Account& account_;
  const bool timed_;
  Residence residence_;
  const OpUses uses_;
  const NoisyTimes times_;
  Orders orders_;
  Tasks tasks_;
  StepRecord record_;
  WorkingSet working_set_;  // of the current task
  Computation computation_;

  State state_ = State::arriving;
  std::uint32_t step_ = 0;
  std::uint32_t op_ = 0;
};

}  // namespace sentinel::sim
