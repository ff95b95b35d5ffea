#include "sim/simulator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "plan/rates.h"
#include "plan/verify.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sim/residence.h"

namespace sentinel::sim {
namespace {

class Simulation {
 public:
  Simulation(const Profile& profile, const Machine& machine, Controller& controller,
             const SimOptions& options)
      : profile_(profile),
        machine_(machine),
        controller_(controller),
        options_(options),
        residence_(profile, machine, options),

        ends_(profile.ops.size()),
        uses_(profile.ops.size()) {
    index();
    populate();
  }

  SimResult run();

 private:
  struct Operand {
    StorageId storage;
    bool read, written;
  };

  void index();
  void populate();
  void step();
  void run_op(OpId);
  void issue();
  void acquire(OpId);
  bool ready(const Operand&);
  void need(const Operand&);
  bool make_room();
  void stream_rest(OpId);
  double compute_us(OpId) const;
  void finish(OpId);

  const Profile& profile_;
  const Machine& machine_;
  Controller& controller_;
  const SimOptions& options_;
  Residence residence_;
  std::vector<std::vector<StorageId>> ends_;  // per op: freed
  std::vector<std::vector<Operand>> uses_;    // per op
  std::vector<Move> moves_;
  std::vector<Operand> streamed_;  // of the current op
  double in_place_us_ = 0;         // of the current op: use of tensors left in a slow tier
  SimResult result_;
};

void Simulation::index() {
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
      uses_[use % ops].push_back({id, in || !out, out});
    }
  }
}

// Before the first step: what lives across steps is in fast memory, in order, as far as it fits and
// is not said to be absent.
void Simulation::populate() {
  std::vector<bool> absent(residence_.size(), false);
  for (TensorId t : options_.absent)
    if (residence_.of(t) != Residence::kNone) absent[residence_.of(t).index()] = true;
  for (std::uint32_t i = 0; i < residence_.size(); ++i) {
    const plan::Storage& s = residence_.storage(StorageId(i));
    if (!s.persistent && !s.carried) continue;
    if (absent[i] || !residence_.create(StorageId(i))) residence_.begin_absent(StorageId(i));
  }
}

void Simulation::issue() {
  for (const Move& m : moves_) {
    const StorageId s = residence_.of(m.tensor);
    if (s == Residence::kNone) continue;
    if (m.direction == Direction::promote)
      residence_.promote(s);
    else
      residence_.demote(s, m.tier);
  }
  moves_.clear();
  residence_.settle();
}

// Whether the op can start as far as this operand goes.
bool Simulation::ready(const Operand& o) {
  if (residence_.place(o.storage) == Place::fast) return true;
  return std::ranges::any_of(streamed_, [&](const Operand& s) { return s.storage == o.storage; });
}

void Simulation::need(const Operand& o) {
  const StorageId s = o.storage;
  if (residence_.place(s) == Place::arriving || residence_.place(s) == Place::leaving) return;
  if (!o.read || residence_.place(s) == Place::nowhere) {
    residence_.create(s);  // overwritten whole
    return;
  }
  if (residence_.queued_in(s)) {
    residence_.expedite(s);
    return;
  }
  const TierSpec& tier = machine_.tiers[residence_.tier(s)];
  const std::uint64_t bytes = residence_.storage(s).bytes;
  if (tier.byte_addressable) {
    in_place_us_ +=
        tier.latency_us + static_cast<double>(bytes) / plan::rate(machine_, residence_.tier(s), 0);
    streamed_.push_back(o);
    return;
  }
  const std::uint64_t batches =
      (bytes + machine_.fault_batch_bytes - 1) / machine_.fault_batch_bytes;
  if (residence_.fetch(s, static_cast<double>(batches) * machine_.fault_us))
    result_.demand_faults += batches;
}

// Puts out what was unused the longest. False where nothing is left to put out.
bool Simulation::make_room() {
  StorageId victim = Residence::kNone;
  for (std::uint32_t i = 0; i < residence_.size(); ++i) {
    const StorageId s(i);
    if (residence_.place(s) != Place::fast || residence_.pinned(s)) continue;
    if (victim == Residence::kNone || residence_.last_use_us(s) < residence_.last_use_us(victim))
      victim = s;
  }
  if (victim == Residence::kNone) return false;
  ++result_.evictions;
  residence_.demote(victim, 1);
  return true;
}

// What found no room although nothing else is left: it passes through.
void Simulation::stream_rest(OpId op) {
  for (const Operand& o : uses_[op.index()]) {
    if (ready(o)) continue;
    if (residence_.queued_in(o.storage)) residence_.demote(o.storage, 1);
    streamed_.push_back(o);
  }
  ++result_.streamed_ops;
}

void Simulation::acquire(OpId op) {
  const auto& operands = uses_[op.index()];
  while (true) {
    for (const Operand& o : operands)
      if (!ready(o)) need(o);
    residence_.settle();
    if (std::ranges::all_of(operands, [&](const Operand& o) { return ready(o); })) return;
    if (!residence_.idle())
      residence_.advance_to_event();
    else if (!make_room())
      return stream_rest(op);
  }
}

double Simulation::compute_us(OpId op) const {
  const double us = profile_.ops[op.index()].us + in_place_us_;
  double in = 0, out = 0;
  for (const Operand& o : streamed_) {
    const std::uint32_t tier = residence_.tier(o.storage);
    if (machine_.tiers[tier].byte_addressable) continue;
    const auto bytes = static_cast<double>(residence_.storage(o.storage).bytes);
    if (o.read) in += bytes / plan::rate(machine_, tier, 0);
    if (o.written) out += bytes / plan::rate(machine_, 0, tier);
  }
  return std::max({us, in, out});
}

void Simulation::finish(OpId op) {
  for (const Operand& o : uses_[op.index()]) {
    residence_.used(o.storage, o.written, residence_.now_us());
    residence_.pin(o.storage, false);
  }
  for (const Operand& o : streamed_) {
    const bool in_place = machine_.tiers[residence_.tier(o.storage)].byte_addressable;
    if (residence_.place(o.storage) != Place::arriving)
      residence_.stream(o.storage, o.read && !in_place, o.written && !in_place);
  }
  controller_.op_end(op, moves_);
  issue();
  for (StorageId s : ends_[op.index()]) residence_.destroy(s);
}

void Simulation::run_op(OpId op) {
  const double begin = residence_.now_us();
  streamed_.clear();
  in_place_us_ = 0;
  controller_.op_start(op, moves_);
  issue();
  for (const Operand& o : uses_[op.index()]) residence_.pin(o.storage, true);
  acquire(op);
  residence_.advance_to(residence_.now_us() + compute_us(op));
  result_.op_stall_us.push_back(residence_.now_us() - begin - profile_.ops[op.index()].us);
  finish(op);
}

void Simulation::step() {
  const double begin = residence_.now_us();
  const std::uint64_t peak = result_.peak_fast_bytes;
  auto times = std::move(result_.step_times_us);
  result_ = SimResult{.ideal_us = ideal_us(profile_)};
  residence_.reset_traffic();
  for (std::size_t k = 0; k < profile_.ops.size(); ++k) run_op(OpId(k));
  result_.step_us = residence_.now_us() - begin;
  result_.stall_us = result_.step_us - result_.ideal_us;
  result_.peak_fast_bytes = std::max(peak, residence_.peak_bytes());
  result_.traffic = residence_.traffic();
  times.push_back(result_.step_us);
  result_.step_times_us = std::move(times);
}

SimResult Simulation::run() {
  for (std::uint32_t i = 0; i < std::max(options_.steps, 1u); ++i) step();
  return std::move(result_);
}

}  // namespace

SimResult simulate(const Profile& profile, const Machine& machine, Controller& controller,
                   const SimOptions& options) {
  if (machine.tiers.size() < 2)
    throw Error(fmt::format("machine {} has no slower tier", machine.name));
  if (options.fast_bytes < machine.granule_bytes)
    throw Error(
        fmt::format("{} of fast memory do not hold one granule", print_bytes(options.fast_bytes)));
  return Simulation(profile, machine, controller, options).run();
}

SimResult simulate(const Profile& profile, const Machine& machine, const Plan& plan,
                   std::uint32_t steps) {
  const auto controller = walk(plan);
  const auto absent = plan::absent_at_start(plan, profile);
  return simulate(profile, machine, *controller,
                  {.fast_bytes = plan.fast_bytes,
                   .steps = steps,
                   .placements = plan.placements,
                   .absent = absent});
}

}  // namespace sentinel::sim
