// Fetches operands, uses them in place, or streams those that do not fit.
#include "sim/job/working_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/checked.h"
#include "plan/step/rates.h"
#include "sentinel/error.h"

namespace sentinel::sim {

WorkingSet::WorkingSet(Controller& controller, Commons& commons, Account& account,
                       Residence& residence, const OpUses& uses, Orders& orders, StepRecord& record)
    : controller_(controller),
      commons_(commons),
      machine_(commons.machine()),
      account_(account),
      residence_(residence),
      uses_(uses),
      orders_(orders),
      record_(record),
      passing_(commons, account, residence),
      wakeful_(residence.storages().size()) {}

void WorkingSet::begin(const Task& task) {
  task_ = &task;
  begin_us_ = commons_.now_us();
  passing_.begin();
  in_place_us_ = 0;
  scratch_held_ = task.scratch_bytes == 0;
  for (const Operand& o : task.operands) residence_.pin(o.storage, true);
  residence_.changes().stirred.clear();  // what others did
  wakeful_.begin(task.operands);
  is_ready_.assign(task.operands.size(), false);
  unready_ = task.operands.size();
  claim_.reset();
  overflows_ = false;
  if (!task.replay && !plan::has_in_place(machine_)) overflow();
}

// An op that cannot hold its operands at once does not wait for them. (Scratch is of replays
// alone.)
void WorkingSet::overflow() {
  std::vector<StorageId> operands;
  std::uint64_t most = 0;
  for (const Operand& o : task_->operands) {
    operands.push_back(o.storage);
    most = saturated_sum(most, residence_.storage(o.storage).bytes + 2 * machine_.granule_bytes);
  }
  if (most <= commons_.capacity()) return;
  const auto beyond = residence_.beyond(operands);
  if (beyond.empty()) return;
  overflows_ = true;
  const std::set<StorageId> no_room(beyond.begin(), beyond.end());
  for (const Operand& o : task_->operands) {
    const Whereabouts place = residence_.place(o.storage);
    const bool passes = place == Whereabouts::slow || place == Whereabouts::nowhere;
    if (!passes || !no_room.contains(o.storage)) continue;
    residence_.demote(o.storage, 1);
    passing_.add(o);
  }
  record_.count_streamed();
}

// Whether the task can start as far as this operand goes.
bool WorkingSet::ready(const Operand& o) const {
  return residence_.place(o.storage) == Whereabouts::fast || passing_.contains(o.storage);
}

void WorkingSet::make(const Operand& o) {
  const Whereabouts place = residence_.place(o.storage);
  if (place == Whereabouts::slow && !residence_.queued_in(o.storage) && use_in_place(o)) return;
  if (machine_.tiers[1].byte_addressable && place == Whereabouts::nowhere) {
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
bool WorkingSet::use_in_place(const Operand& o) {
  const std::uint32_t tier = residence_.tier(o.storage);
  if (!machine_.tiers[tier].byte_addressable) return false;
  in_place_us_ += uses_.in_place_us(task_->op, o, machine_, tier);
  passing_.add(o);
  return true;
}

void WorkingSet::need(const Operand& o) {
  const StorageId s = o.storage;
  const Whereabouts place = residence_.place(s);
  if (residence_.recall(s) || place == Whereabouts::arriving || place == Whereabouts::leaving)
    return;
  if (!o.read || place == Whereabouts::nowhere) return make(o);  // overwritten whole
  if (place == Whereabouts::lost)
    throw Error(fmt::format("op {} reads tensor {}, which was discarded and not recomputed",
                            task_->op.value, residence_.storage(s).tensor.value));
  if (residence_.queued_in(s)) return residence_.expedite(s);
  if (!use_in_place(o)) fetch(s);
}

void WorkingSet::fetch(StorageId s) {
  const std::uint64_t bytes = residence_.storage(s).bytes;
  const std::uint64_t batches =
      (bytes + machine_.fault_batch_bytes - 1) / machine_.fault_batch_bytes;
  controller_.fault(residence_.storage(s).tensor, orders_.asked());
  residence_.fetch(s, static_cast<double>(batches) * machine_.fault_us);
  record_.count_faults(batches);
}

// Notes whether it is ready. One that now passes through the op, or has left, changes the claim;
// what has come holds its granules, so it lacked none.
void WorkingSet::look_at(std::uint32_t operand) {
  const Operand& o = task_->operands[operand];
  const bool now = ready(o);
  if (now == is_ready_[operand]) return;
  is_ready_[operand] = now;
  now ? --unready_ : ++unready_;
  if (!now || passing_.contains(o.storage)) claim_.reset();
}

std::uint64_t WorkingSet::claim() {
  if (claim_ && holdings_ == residence_.changes().holdings) return *claim_;
  holdings_ = residence_.changes().holdings;
  claim_ = 0;
  for (std::size_t i = 0; i < task_->operands.size(); ++i)
    if (!is_ready_[i]) *claim_ += residence_.missing(task_->operands[i].storage);
  return *claim_;
}

bool WorkingSet::acquire() {
  wakeful_.wake(std::exchange(residence_.changes().stirred, {}));
  wakeful_.visit([&](std::uint32_t i) {
    const Operand& o = task_->operands[i];
    if (!ready(o) && !residence_.demanded(o.storage)) need(o);
    look_at(i);
    return !is_ready_[i] && !residence_.demanded(o.storage);
  });
  if (!scratch_held_) scratch_held_ = commons_.take(account_, task_->scratch_bytes);
  commons_.claim(account_, claim());
  orders_.issue();
  wakeful_.wake(std::exchange(residence_.changes().stirred, {}));
  for (const std::uint32_t i : wakeful_.awake()) look_at(i);
  if (complete()) commons_.claim(account_, 0);
  return complete();
}

bool WorkingSet::lacks_room() { return claim() > commons_.free_bytes() + account_.leaving; }

void WorkingSet::stream_rest() {
  bool streams = !scratch_held_;
  for (const Operand& o : task_->operands) {
    if (ready(o)) continue;
    residence_.demote(o.storage, 1);
    if (use_in_place(o)) continue;
    passing_.add(o);
    streams = true;
  }
  wakeful_.wake_all();
  // Scratch that finds no room is written out and read back.
  if (!scratch_held_) {
    const double bytes = static_cast<double>(task_->scratch_bytes);
    in_place_us_ += bytes / plan::lone_rate(machine_, 0, 1) +
                    bytes / plan::lone_rate(machine_, 1, 0) + plan::moving_us(machine_, 2 * bytes);
    scratch_streamed_ += task_->scratch_bytes;
    scratch_held_ = true;
  }
  if (streams) record_.count_streamed();
}

void WorkingSet::note_uses() const {
  Timeline::Use use{begin_us_, commons_.now_us()};
  for (const Operand& o : task_->operands) {
    (passing_.contains(o.storage) ? use.slow_bytes : use.fast_bytes) += uses_.bytes(task_->op, o);
  }
  account_.timeline.uses.push_back(use);
}

void WorkingSet::release() {
  for (const Operand& o : task_->operands) {
    residence_.used(o.storage, o.written);
    residence_.pin(o.storage, false);
  }
  passing_.end();
  const std::uint64_t streamed = std::min(scratch_streamed_, task_->scratch_ends);
  scratch_streamed_ -= streamed;
  if (task_->scratch_ends > streamed) commons_.give(account_, task_->scratch_ends - streamed);
}

}  // namespace sentinel::sim
