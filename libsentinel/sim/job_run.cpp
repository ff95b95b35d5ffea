#include "sim/job_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/units.h"
#include "plan/step/rates.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sim/noise.h"

namespace sentinel::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Rounding: less compute than this, relative to the clock, is none.
constexpr double kRounding = 1e-12;

}  // namespace

JobRun::JobRun(const Job& job, Commons& commons, const SimOptions& options, std::size_t index)
    : profile_(*job.profile),
      controller_(*job.controller),
      commons_(commons),
      account_(commons.open_account()),
      machine_(commons.machine()),
      residence_(profile_, job.placements, commons, account_),
      job_(job),
      noise_(options.noise),
      timed_(options.timeline),
      seed_(options.seed),
      index_(index),
      openings_(profile_, residence_.storages()),
      ends_(profile_.ops.size()),
      uses_(profile_.ops.size()) {
  this->index();
}

void JobRun::index() {
  const auto ops = static_cast<std::uint32_t>(profile_.ops.size());
  for (std::uint32_t i = 0; i < residence_.size(); ++i) {
    const StorageId id(i);
    const plan::Storage& s = residence_.storage(id);
    if (!s.persistent) ends_[s.last % ops].push_back(id);
    for (std::uint32_t use : s.uses) {
      const Op& op = profile_.ops[use % ops];
      const TensorId t = s.at(use, ops);
      const bool in = std::ranges::binary_search(op.in, t),
                 out = std::ranges::binary_search(op.out, t);
      uses_[use % ops].push_back({id, in || !out, out, in || out});
    }
  }
}

// Before the first step: what lives across steps is in fast memory, in order, as far as it fits and
// is not said to be absent.
void JobRun::populate() {
  std::vector<bool> absent(residence_.size(), false);
  for (TensorId t : job_.absent)
    if (residence_.of(t) != Residence::kNone) absent[residence_.of(t).index()] = true;
  for (std::uint32_t i = 0; i < residence_.size(); ++i) {
    const StorageId id(i);
    const plan::Storage& s = residence_.storage(id);
    if (!s.persistent && !s.carried) continue;
    const std::uint32_t tier = controller_.birth(s.tensor, residence_.has_room(id));
    if (absent[i] || tier != 0 || !residence_.create(id)) residence_.begin_absent(id);
  }
}

void JobRun::begin_step() {
  const std::uint64_t peak = result_.peak_fast_bytes;
  auto times = std::move(result_.step_times_us);
  result_ = SimResult{.ideal_us = noisy_ideal_us(profile_, noise_, seed_, index_, step_),
                      .peak_fast_bytes = peak};
  result_.step_times_us = std::move(times);
  commons_.begin_step(account_);
  computed_us_.clear();
  step_begin_us_ = commons_.now_us();
  op_ = 0;
}

void JobRun::end_step() {
  end_us_ = commons_.now_us();
  // The clock knows a short step after a long one only roughly.
  result_.step_us = std::max(end_us_ - step_begin_us_, result_.ideal_us);
  result_.stall_us = result_.step_us - result_.ideal_us - result_.recompute_us - result_.shared_us;
  result_.peak_fast_bytes = account_.peak;
  result_.step_times_us.push_back(result_.step_us);
  const bool last = ++step_ >= std::max(job_.steps, 1u);
  controller_.step_end(computed_us_, last);
  if (!last) return begin_step();
  result_.traffic = commons_.traffic(account_);
  result_.timeline = since(step_begin_us_, std::move(account_.timeline));
  state_ = State::done;
  put_off_.clear();
  for (std::uint32_t i = 0; i < residence_.size(); ++i) residence_.destroy(StorageId(i));
}

void JobRun::proceed() {
  while (true) {
    apply_put_off();
    residence_.settle();
    switch (state_) {
      case State::arriving:
        if (commons_.now_us() < job_.start_us) return;
        populate();
        begin_step();
        state_ = State::between;
        break;
      case State::between:
        if (op_ == profile_.ops.size()) {
          end_step();
        } else {
          begin_op();
          state_ = State::acquiring;
        }
        break;
      case State::acquiring:
        if (!acquire()) return;
        commons_.claim(account_, 0);
        compute_begin_us_ = commons_.now_us();
        left_us_ = compute_us_ = compute_us();
        state_ = State::computing;
        break;
      case State::computing:
        if (left_us_ > kRounding * std::max(1.0, commons_.now_us())) return;
        end_task();
        break;
      case State::done:
        return;
    }
  }
}

double JobRun::next_event_us() const {
  if (state_ == State::arriving) return job_.start_us;
  return put_off_.empty() ? kNever : put_off_.begin()->first;
}

void JobRun::apply(const Move& m) {
  const StorageId s = residence_.of(m.tensor);
  if (s == Residence::kNone) return;
  switch (m.direction) {
    case Direction::promote:
      return residence_.promote(s);
    case Direction::demote:
    case Direction::release:
      return residence_.demote(s, m.tier);
    case Direction::discard:
      return residence_.discard(s);
    case Direction::copy:
      return residence_.copy(s, m.tier);
  }
}

// Op times differ from those the delay was reckoned with: what was to leave after a use may be in
// use again, or have been since, when its time has come. Then it stays.
void JobRun::apply_put_off() {
  while (!put_off_.empty() && put_off_.begin()->first <= commons_.now_us()) {
    const auto [move, issued_us] = put_off_.extract(put_off_.begin()).mapped();
    const StorageId s = residence_.of(move.tensor);
    if (s != Residence::kNone && move.direction != Direction::promote &&
        (residence_.pinned(s) || residence_.last_use_us(s) > issued_us))
      continue;
    apply(move);
  }
}

void JobRun::issue() {
  for (const Move& m : moves_)
    if (m.delay_us > 0)
      put_off_.emplace(commons_.now_us() + m.delay_us, PutOff{m, commons_.now_us()});
    else
      apply(m);
  moves_.clear();
  residence_.settle();
}

void JobRun::begin_op() {
  op_begin_us_ = commons_.now_us();
  replayed_us_ = shared_us_ = 0;
  controller_.op_start(OpId(op_), moves_);
  issue();
  tasks_.clear();
  plan_replays(OpId(op_));
  tasks_.push_back({.op = OpId(op_), .operands = uses_[op_]});
  task_ = 0;
  begin_task();
}

// What a replay makes and the plan does not keep lives until the last replay here that reads it.
// What exists in a later version is made beside it, in scratch space. Persistent tensors are not
// written.
void JobRun::plan_replays(OpId before) {
  const auto replays = controller_.replays(before);
  std::set<StorageId> kept;
  for (const Recompute& r : replays)
    for (TensorId t : r.keep) kept.insert(residence_.of(t));
  std::map<StorageId, std::size_t> last;    // made and not kept: the task that reads it last
  std::map<StorageId, std::size_t> beside;  // made beside a later version: the same
  for (const Recompute& r : replays) {
    Task task{.op = r.op, .replay = true};
    for (Operand o : uses_[r.op.index()]) {
      if (!o.named) continue;
      const plan::Storage& storage = residence_.storage(o.storage);
      const Place place = residence_.place(o.storage);
      const bool gone = place == Place::nowhere || place == Place::lost;
      const bool apart =
          o.written && !gone && !kept.contains(o.storage) && !(storage.persistent && o.read);
      if (apart && !beside.contains(o.storage))
        task.scratch_bytes += round_up(storage.bytes, machine_.granule_bytes);
      if (apart || beside.contains(o.storage)) {
        beside[o.storage] = tasks_.size();
        continue;
      }
      if (gone && !o.written && !last.contains(o.storage) && !kept.contains(o.storage))
        throw Error(fmt::format("the replay of op {} before op {} reads tensor {}, which is gone",
                                r.op.value, before.value, storage.tensor.value));
      if (gone && !kept.contains(o.storage)) last[o.storage] = tasks_.size();
      o.written &= !storage.persistent;
      task.operands.push_back(o);
    }
    tasks_.push_back(std::move(task));
  }
  for (const auto& [storage, task] : last) tasks_[task].drop.push_back(storage);
  for (const auto& [storage, task] : beside)
    tasks_[task].scratch_ends +=
        round_up(residence_.storage(storage).bytes, machine_.granule_bytes);
}

void JobRun::begin_task() {
  task_begin_us_ = commons_.now_us();
  streamed_.clear();
  in_place_us_ = 0;
  scratch_held_ = tasks_[task_].scratch_bytes == 0;
  for (const Operand& o : tasks_[task_].operands) residence_.pin(o.storage, true);
}

// Whether the task can start as far as this operand goes.
bool JobRun::ready(const Operand& o) const {
  if (residence_.place(o.storage) == Place::fast) return true;
  return std::ranges::any_of(streamed_, [&](const Operand& s) { return s.storage == o.storage; });
}

void JobRun::make(const Operand& o) {
  const Place place = residence_.place(o.storage);
  if (place == Place::slow && !residence_.queued_in(o.storage) && use_in_place(o)) return;
  if (machine_.tiers[1].byte_addressable && place == Place::nowhere) {
    const std::uint32_t tier =
        controller_.birth(residence_.storage(o.storage).tensor, residence_.has_room(o.storage));
    if (tier != 0) {
      residence_.create_in(o.storage, tier);
      use_in_place(o);
      return;
    }
  }
  residence_.create(o.storage);
}

// A byte-addressable slow tier is used where it lies.
bool JobRun::use_in_place(const Operand& o) {
  const std::uint32_t tier = residence_.tier(o.storage);
  if (!machine_.tiers[tier].byte_addressable) return false;
  const auto pages = openings_.of(tasks_[task_].op, o.storage.value, o.read, o.written);
  in_place_us_ += openings_.in_place_us(machine_, tier, pages);
  streamed_.push_back(o);
  return true;
}

void JobRun::need(const Operand& o) {
  const StorageId s = o.storage;
  const Place place = residence_.place(s);
  if (residence_.recall(s) || place == Place::arriving || place == Place::leaving) return;
  if (!o.read || place == Place::nowhere) return make(o);  // overwritten whole
  if (place == Place::lost)
    throw Error(fmt::format("op {} reads tensor {}, which was discarded and not recomputed",
                            tasks_[task_].op.value, residence_.storage(s).tensor.value));
  if (residence_.queued_in(s)) return residence_.expedite(s);
  if (use_in_place(o)) return;
  const std::uint64_t bytes = residence_.storage(s).bytes;
  const std::uint64_t batches =
      (bytes + machine_.fault_batch_bytes - 1) / machine_.fault_batch_bytes;
  controller_.fault(residence_.storage(s).tensor, moves_);
  residence_.fetch(s, static_cast<double>(batches) * machine_.fault_us);
  result_.demand_faults += batches;
}

bool JobRun::acquire() {
  const Task& task = tasks_[task_];
  std::uint64_t claim = 0;
  for (const Operand& o : task.operands) {
    if (ready(o)) continue;
    if (!residence_.demanded(o.storage)) need(o);
    if (!ready(o)) claim += residence_.missing(o.storage);
  }
  if (!scratch_held_) scratch_held_ = commons_.take(account_, task.scratch_bytes);
  commons_.claim(account_, claim);
  issue();
  return scratch_held_ &&
         std::ranges::all_of(task.operands, [&](const Operand& o) { return ready(o); });
}

void JobRun::put_out(StorageId victim) {
  ++result_.evictions;
  residence_.demote(victim, 1);
}

void JobRun::stream_rest() {
  bool streams = !scratch_held_;
  for (const Operand& o : tasks_[task_].operands) {
    if (ready(o)) continue;
    residence_.demote(o.storage, 1);
    if (use_in_place(o)) continue;
    streamed_.push_back(o);
    streams = true;
  }
  // Scratch that finds no room is written out and read back.
  if (!scratch_held_) {
    const double bytes = static_cast<double>(tasks_[task_].scratch_bytes);
    in_place_us_ += bytes / plan::lone_rate(machine_, 0, 1) +
                    bytes / plan::lone_rate(machine_, 1, 0) + plan::moving_us(machine_, 2 * bytes);
    scratch_streamed_ += tasks_[task_].scratch_bytes;
    scratch_held_ = true;
  }
  if (streams) ++result_.streamed_ops;
}

// Into the timeline: the pages that the task opened, by where they lay.
void JobRun::note_uses() {
  Timeline::Use use{task_begin_us_, commons_.now_us()};
  for (const Operand& o : tasks_[task_].operands) {
    const bool slow =
        std::ranges::any_of(streamed_, [&](const Operand& s) { return s.storage == o.storage; });
    const double bytes =
        openings_.bytes(openings_.of(tasks_[task_].op, o.storage.value, o.read, o.written));
    (slow ? use.slow_bytes : use.fast_bytes) += bytes;
  }
  account_.timeline.uses.push_back(use);
}

double JobRun::op_us(OpId op, bool replay) const {
  return profile_.ops[op.index()].us * noise_factor(noise_, seed_, index_, step_, op.value, replay);
}

double JobRun::compute_us() const {
  const Task& task = tasks_[task_];
  const double us = op_us(task.op, task.replay);
  double in = 0, out = 0, both = 0, moved = 0;
  for (const Operand& o : streamed_) {
    const std::uint32_t tier = residence_.tier(o.storage);
    if (machine_.tiers[tier].byte_addressable) continue;
    const auto bytes = static_cast<double>(residence_.storage(o.storage).bytes);
    const double comes = o.read ? bytes : 0, goes = o.written ? bytes : 0;
    in += comes / plan::lone_rate(machine_, tier, 0);
    out += goes / plan::lone_rate(machine_, 0, tier);
    both += plan::turns_us(machine_, tier, comes, goes);
    moved += comes + goes;
  }
  return std::max({us + in_place_us_ + plan::moving_us(machine_, moved), in, out, both});
}

void JobRun::end_task() {
  Task& task = tasks_[task_];
  if (timed_) note_uses();
  for (const Operand& o : task.operands) {
    residence_.used(o.storage, o.written);
    residence_.pin(o.storage, false);
  }
  for (const Operand& o : streamed_) {
    const bool in_place = machine_.tiers[residence_.tier(o.storage)].byte_addressable;
    if (residence_.place(o.storage) != Place::arriving)
      residence_.stream(o.storage, o.read && !in_place, o.written && !in_place);
  }
  const std::uint64_t streamed = std::min(scratch_streamed_, task.scratch_ends);
  scratch_streamed_ -= streamed;
  if (task.scratch_ends > streamed) commons_.give(account_, task.scratch_ends - streamed);
  const double took = commons_.now_us() - compute_begin_us_;
  shared_us_ += std::max(0.0, took - compute_us_);
  if (!task.replay) computed_us_.push_back(took);
  if (task.replay) {
    result_.recompute_us += profile_.ops[task.op.index()].us;
    replayed_us_ += profile_.ops[task.op.index()].us;
  }
  // What nothing reads any more goes: dead outputs die again, discarded ones are lost again.
  for (StorageId s : task.drop) {
    const plan::Storage& storage = residence_.storage(s);
    if (storage.last < op_)
      residence_.destroy(s);
    else
      residence_.discard(s);
  }
  if (++task_ < tasks_.size()) {
    begin_task();
    state_ = State::acquiring;
  } else {
    end_op();
  }
}

void JobRun::end_op() {
  const double now = commons_.now_us();
  const double late = now - op_begin_us_ - op_us(OpId(op_)) - replayed_us_ - shared_us_;
  result_.shared_us += shared_us_;
  result_.op_stall_us.push_back(late);
  if (late > 0) account_.timeline.waits.push_back({op_begin_us_, op_begin_us_ + late, OpId(op_)});
  controller_.op_end(OpId(op_), moves_);
  issue();
  for (StorageId s : ends_[op_]) residence_.destroy(s);
  ++op_;
  state_ = State::between;
}

SimResult JobRun::take_result() { return std::move(result_); }

}  // namespace sentinel::sim
