// Carries a job through its states: arriving, between steps, acquiring, computing, done.
#include "sim/job/job_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/step/rates.h"

namespace sentinel::sim {

JobRun::JobRun(const Job& job, Commons& commons, const SimOptions& options, std::size_t index)
    : job_(job),
      controller_(*job.controller),
      commons_(commons),
      account_(commons.open_account()),
      timed_(options.timeline),
      residence_(*job.profile, job.placements, commons, account_),
      uses_(*job.profile, residence_.storages()),
      times_(*job.profile, options, index),
      orders_(commons, residence_),
      tasks_(*job.profile, residence_, uses_, commons.machine().granule_bytes),
      working_set_(controller_, commons, account_, residence_, uses_, orders_, record_) {}

// Before the first step: what lives across steps is in fast memory, in order, as far as it fits and
// is not said to be absent.
void JobRun::populate() {
  std::vector<bool> absent(residence_.storages().size(), false);
  for (TensorId t : job_.absent)
    if (residence_.of(t) != Residence::kNone) absent[residence_.of(t).index()] = true;
  for (std::uint32_t i = 0; i < residence_.storages().size(); ++i) {
    const StorageId id(i);
    const plan::Storage& s = residence_.storage(id);
    if (!s.persistent && !s.carried) continue;
    const std::uint32_t tier = controller_.birth(s.tensor, residence_.has_room(id));
    if (absent[i] || tier != 0 || !residence_.create(id)) residence_.create_in(id, 1);
  }
}

void JobRun::begin_step() {
  record_.begin_step(commons_.now_us(), times_.ideal_us(step_));
  commons_.begin_step(account_);
  op_ = 0;
}

void JobRun::end_step() {
  record_.end_step(commons_.now_us(), account_.peak);
  const bool last = ++step_ >= std::max(job_.steps, 1u);
  controller_.step_end(record_.computed_us(), last);
  if (!last) return begin_step();
  record_.finish(commons_.traffic(account_),
                 since(record_.begin_us(), std::move(account_.timeline)));
  state_ = State::done;
  orders_.forget_put_off();
  for (std::uint32_t i = 0; i < residence_.storages().size(); ++i) residence_.destroy(StorageId(i));
}

void JobRun::proceed() {
  while (true) {
    orders_.apply_due();
    residence_.settle();
    switch (state_) {
      case State::arriving:
        if (commons_.now_us() < job_.start_us) return;
        populate();
        begin_step();
        state_ = State::between;
        break;
      case State::between:
        if (op_ == job_.profile->ops.size()) {
          end_step();
        } else {
          begin_op();
          state_ = State::acquiring;
        }
        break;
      case State::acquiring:
        if (!working_set_.acquire()) {
          if (!working_set_.overflows()) return;
          make_way();
        }
        begin_computation();
        state_ = State::computing;
        break;
      case State::computing:
        if (!working_set_.complete()) working_set_.acquire();
        if (!computation_.over(commons_.now_us())) return;
        end_computation();
        state_ = State::completing;
        break;
      case State::completing:
        if (!working_set_.complete() && !working_set_.acquire()) return;
        working_set_.let_pass();
        if (!working_set_.passed()) return;
        end_task();
        break;
      case State::done:
        return;
    }
  }
}

double JobRun::next_event_us() const {
  return state_ == State::arriving ? job_.start_us : orders_.next_due_us();
}

void JobRun::put_out(StorageId victim) {
  record_.count_eviction();
  residence_.demote(victim, 1);
}

// An op that overflows does not wait until nothing else helps: as much leaves as it lacks.
void JobRun::make_way() {
  while (working_set_.lacks_room() && residence_.longest_unused() != Residence::kNone)
    put_out(residence_.longest_unused());
  working_set_.acquire();
}

void JobRun::begin_op() {
  const OpId op(op_);
  record_.begin_op(commons_.now_us());
  controller_.op_start(op, orders_.asked());
  orders_.issue();
  tasks_.plan(op, controller_.replays(op));
  working_set_.begin(tasks_.current());
}

double JobRun::remaking_us(const Task& task) const {
  return plan::remaking_us(commons_.machine(), static_cast<double>(task.copied_bytes));
}

void JobRun::begin_computation() {
  const Task& task = tasks_.current();
  const double alone_us = times_.us(step_, task.op, task.replay) + remaking_us(task);
  computation_.start(commons_.now_us(), alone_us + working_set_.in_place_us());
  working_set_.let_pass();
}

void JobRun::end_computation() {
  const Task& task = tasks_.current();
  if (task.replay)
    record_.add_replay(computation_, commons_.now_us(),
                       times_.profiled_us(task.op) + remaking_us(task));
  else
    record_.add_op(computation_, commons_.now_us());
}

void JobRun::end_task() {
  const Task& task = tasks_.current();
  if (timed_) working_set_.note_uses();
  working_set_.release();
  drop(task);
  if (tasks_.next()) {
    working_set_.begin(tasks_.current());
    state_ = State::acquiring;
  } else {
    end_op();
  }
}

// What nothing reads any more goes: dead outputs die again, discarded ones are lost again.
void JobRun::drop(const Task& task) {
  for (StorageId s : task.drop) {
    const plan::Storage& storage = residence_.storage(s);
    if (storage.last < op_)
      residence_.destroy(s);
    else
      residence_.discard(s);
  }
}

void JobRun::end_op() {
  const OpId op(op_);
  const double late = record_.end_op(commons_.now_us(), times_.us(step_, op));
  const double begin = record_.op_begin_us();
  if (late > 0) account_.timeline.waits.push_back({begin, begin + late, op});
  controller_.op_end(op, orders_.asked());
  orders_.issue();
  for (StorageId s : uses_.ended_by(op)) residence_.destroy(s);
  ++op_;
  state_ = State::between;
}

}  // namespace sentinel::sim
