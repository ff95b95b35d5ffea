// Runs a pager's policy kernel by kernel, until its steps repeat.
#include "sim/paging.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <random>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sim/addresses.h"
#include "sim/cache_run.h"
#include "sim/job/noise.h"
#include "sim/unified_memory.h"

namespace sentinel::sim {
namespace {

constexpr double kSteadyTime = 1e-3, kLearnedFaults = 1e-4;

std::uint64_t mix(std::uint64_t h, std::uint64_t value) {
  return std::rotl((h ^ value) * 0x9e3779b97f4a7c15, 31);
}

std::uint64_t hash(std::string_view text) {  // FNV-1a: the same everywhere
  std::uint64_t h = 0xcbf29ce484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

using Clock = std::chrono::steady_clock;

// Blocks are followed one by one: a step is refused that would name far more of them, again and
// again, than its file has characters.
void require_followed(const Addresses& addresses, std::size_t ops) {
  double bytes = 0;
  const auto add = [&](std::uint32_t storage) {
    bytes += static_cast<double>(addresses.range(storage).bytes);
  };
  for (std::size_t k = 0; k < ops; ++k) {
    for (const auto& operand : addresses.operands(OpId(k))) add(operand.storage);
    std::ranges::for_each(addresses.births(OpId(k)), add);
  }
  if (addresses.reserved_bytes() <= kMostAddresses && bytes <= kMostStepBytes) return;
  throw Error(fmt::format(
      "the step names {} in {} of addresses, in blocks of {}: more than can be followed one by "
      "one (at most {} in {})",
      print_bytes(static_cast<std::uint64_t>(std::min(bytes, 0x1p63))),
      print_bytes(addresses.reserved_bytes()), print_bytes(kBlockBytes),
      print_bytes(kMostStepBytes), print_bytes(kMostAddresses)));
}

class PagedRun {
 public:
  PagedRun(const Profile& profile, const Machine& machine, Pager& pager, const SimOptions& options)
      : profile_(profile),
        pager_(pager),
        options_(options),
        begin_(Clock::now()),
        commons_(machine, options),
        memory_(commons_, pager, options.fast_bytes),
        addresses_(profile) {
    require_followed(addresses_, profile.ops.size());
    for (std::uint32_t s : addresses_.carried()) memory_.hand_out(addresses_.range(s));
  }

  SimResult run() {
    const std::uint32_t least = std::max(options_.steps, 1u);
    const std::uint32_t most = least + (least > 1 ? kMoreSteps : 0);
    do step();
    while (times_.size() < least || (times_.size() < most && !worn_out() && !steady()));
    result_.step_times_us = times_;
    result_.peak_fast_bytes = commons_.peak();
    result_.traffic = commons_.traffic(memory_.account());
    result_.timeline = since(begin_us_, std::move(memory_.account().timeline));
    std::erase_if(result_.timeline.transfers, [](const auto& t) { return t.bytes == 0; });
    return std::move(result_);
  }

 private:
  bool worn_out() const {
    const std::chrono::duration<double> passed = Clock::now() - begin_;
    return touched_bytes_ >= kMostTouchedBytes || times_.size() * profile_.ops.size() >= kMostOps ||
           (options_.time_limit_s > 0 && passed.count() >= options_.time_limit_s);
  }

  // Three steps, since a policy may need to see two before it acts on them. One that learns has to
  // have learned: faults are left only where more learning cannot avoid them, for want of room in a
  // table.
  bool steady() const {
    if (times_.size() < 3) return false;
    const auto [least, most] = std::minmax_element(times_.end() - 3, times_.end());
    const bool learns = pager_.table_bytes() > 0;
    return *most - *least <= kSteadyTime * times_.back() &&
           (!learns || faults_.back() <= kLearnedFaults * faults_.front());
  }

  void step() {
    result_ = SimResult{
        .ideal_us = noisy_ideal_us(profile_, options_.noise, options_.seed, 0, times_.size())};
    commons_.begin_step(memory_.account());
    begin_us_ = commons_.now_us();
    for (std::size_t k = 0; k < profile_.ops.size(); ++k) run_op(OpId(k));
    // The clock knows a short step after a long one only roughly.
    result_.step_us = std::max(commons_.now_us() - begin_us_, result_.ideal_us);
    result_.stall_us = result_.step_us - result_.ideal_us - result_.shared_us;
    times_.push_back(result_.step_us);
    const auto counts = memory_.take_counts();
    result_.demand_faults = counts.demand_faults;
    result_.evictions = counts.evictions;
    result_.paging = counts.paging;
    faults_.push_back(
        static_cast<double>(counts.paging.faulted_blocks - counts.paging.conflict_misses));
  }

  void run_op(OpId op) {
    const double begin_us = commons_.now_us();
    for (std::uint32_t s : addresses_.births(op)) {
      addresses_.allocate(s);
      memory_.hand_out(addresses_.range(s));
    }
    pager_.kernel_start(kernel_hash(op));
    touch(op);
    while (true) {
      memory_.settle();
      if (memory_.served()) break;
      if (commons_.idle()) throw Error("the simulation is stuck: no fault can be served");
      commons_.advance_to(commons_.next_event_us());
    }
    const double before_us = result_.shared_us;
    compute(op);
    pager_.kernel_end();
    for (std::uint32_t s : addresses_.deaths(op)) {
      memory_.take_back(addresses_.range(s));
      addresses_.free(s);
    }
    const double late = commons_.now_us() - begin_us - op_us(op) - (result_.shared_us - before_us);
    result_.op_stall_us.push_back(late);
    if (late > 0) memory_.account().timeline.waits.push_back({begin_us, begin_us + late, op});
  }

  std::uint64_t kernel_hash(OpId op) const {
    std::uint64_t h = hash(profile_.ops[op.index()].name);
    for (const auto& operand : addresses_.operands(op)) {
      const auto& range = addresses_.range(operand.storage);
      h = mix(mix(h, range.begin), range.bytes);
    }
    return h;
  }

  void touch(OpId op) {
    std::uint64_t bytes = 0;
    memory_.begin_kernel();
    for (const auto& operand : addresses_.operands(op)) {
      memory_.touch(addresses_.range(operand.storage));
      bytes += addresses_.range(operand.storage).bytes;
    }
    touched_bytes_ += bytes;
    result_.streamed_ops += bytes > options_.fast_bytes ? 1 : 0;
  }

  double op_us(OpId op) const {
    return profile_.ops[op.index()].us *
           noise_factor(options_.noise, options_.seed, 0, times_.size(), op.value);
  }

  void compute(OpId op) {
    const double us = op_us(op);
    const double alone = commons_.now_us() + us;
    double share = commons_.compute_share(), end = commons_.now_us() + us / share;
    while (commons_.now_us() < end) {
      commons_.advance_to(std::min(end, commons_.next_event_us()));
      memory_.settle();
      const double before = std::exchange(share, commons_.compute_share());
      if (share != before) end = commons_.now_us() + (end - commons_.now_us()) * before / share;
    }
    result_.shared_us += std::max(0.0, end - alone);
  }

  const Profile& profile_;
  Pager& pager_;
  const SimOptions options_;
  Clock::time_point begin_;
  Commons commons_;
  UnifiedMemory memory_;
  Addresses addresses_;
  double begin_us_ = 0;
  std::uint64_t touched_bytes_ = 0;     // by ops, over all steps
  std::vector<double> times_, faults_;  // of every step; blocks
  SimResult result_;
};

void check(const Machine& machine) {
  if (machine.tiers.size() < 2) throw Error("machine " + machine.name + " has no slower tier");
}

}  // namespace

SimResult simulate(const Profile& profile, const Machine& machine, Pager& pager,
                   const SimOptions& options) {
  check(machine);
  return PagedRun(profile, machine, pager, options).run();
}

SimResult simulate(const Profile& profile, const Machine& machine, PagedPolicy& policy,
                   const PlanOptions& plan_options, const SimOptions& options) {
  check(machine);
  const auto pager = policy.prepare(machine, plan_options);
  if (policy.mechanism() == Mechanism::hardware_cache) return run_cached(profile, machine, options);
  return simulate(profile, machine, *pager, options);
}

}  // namespace sentinel::sim
