// One job of a simulation: its ops and replays in order, what each waits for and what it costs.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "plan/step/openings.h"
#include "sim/commons.h"
#include "sim/residence.h"
#include "sim/simulation.h"

namespace sentinel::sim {

class JobRun {
 public:
  JobRun(const Job&, Commons&, const SimOptions&, std::size_t index);

  // Starts and ends what can start and end now, until something has to be waited for. A job that
  // found too little room may go on once another one has given some up.
  void proceed();

  bool done() const { return state_ == State::done; }
  bool computes() const { return state_ == State::computing; }
  bool waits() const { return state_ == State::acquiring; }  // for tensors or room
  bool transfers() const { return account_.flying > 0; }     // something of its own is under way

  double left_us() const { return left_us_; }  // of compute alone on the machine
  void compute(double us) { left_us_ -= us; }
  double next_event_us() const;  // its arrival, or a move that was put off

  StorageId longest_unused() const { return residence_.longest_unused(); }
  void put_out(StorageId);  // for want of room
  void stream_rest();       // what found no room although nothing else is left passes through

  double end_us() const { return end_us_; }
  SimResult take_result();

 private:
  enum class State : std::uint8_t { arriving, between, acquiring, computing, done };
  struct Operand {
    StorageId storage;
    bool read, written;
    bool named;  // by the op; otherwise it is only there (what exists from the step's start) or
                 // counted
  };
  // An op of the profile, or a replay of one.
  struct Task {
    OpId op;
    bool replay = false;
    std::vector<Operand> operands;
    std::vector<StorageId> drop;  // replayed outputs that nothing reads after this one
    // Replayed outputs that exist in a later version already: what begins with this task, and what
    // nothing reads after it.
    std::uint64_t scratch_bytes = 0, scratch_ends = 0;
  };

  void index();
  void populate();
  void begin_step();
  void end_step();
  void begin_op();
  void plan_replays(OpId);
  void begin_task();
  bool acquire();
  void end_task();
  void end_op();
  bool ready(const Operand&) const;
  void need(const Operand&);
  bool use_in_place(const Operand&);
  void make(const Operand&);
  void note_uses();
  double op_us(OpId, bool replay = false) const;  // alone on the machine, in this step
  double compute_us() const;
  void issue();
  void apply(const Move&);
  void apply_put_off();

  const Profile& profile_;
  Controller& controller_;
  Commons& commons_;
  Account& account_;
  const Machine& machine_;
  Residence residence_;
  const Job job_;
  double noise_;
  bool timed_;
  std::uint64_t seed_, index_;  // of the noise

  plan::Openings openings_;
  std::vector<std::vector<StorageId>> ends_;  // per op: freed
  std::vector<std::vector<Operand>> uses_;    // per op

  State state_ = State::arriving;
  std::uint32_t step_ = 0;
  std::uint32_t op_ = 0;
  std::vector<Task> tasks_;  // of the current op: replays, then itself
  std::size_t task_ = 0;
  bool scratch_held_ = false;
  std::uint64_t scratch_streamed_ = 0;  // of the current op, held nowhere
  std::vector<Operand> streamed_;       // of the current task
  double in_place_us_ = 0;              // of the current task: use of tensors left in a slow tier
  double task_begin_us_ = 0, left_us_ = 0, op_begin_us_ = 0, step_begin_us_ = 0, end_us_ = 0;
  double compute_begin_us_ = 0, compute_us_ = 0;  // of the current task: from when, how long alone
  double replayed_us_ = 0, shared_us_ = 0;        // of the current op
  std::vector<double> computed_us_;               // per op of the step: compute, as shared
  std::vector<Move> moves_;
  struct PutOff {
    Move move;
    double issued_us;
  };
  std::multimap<double, PutOff> put_off_;  // by when they are due
  SimResult result_;
};

}  // namespace sentinel::sim
