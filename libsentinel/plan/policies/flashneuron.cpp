// FlashNeuron: Bae, Lee, Jin, Son, Kim, Jang, Ham, Lee, "FlashNeuron: SSD-Enabled Large-Batch
// Training of Very Deep Neural Networks", FAST 2021.
//
// Modelled: the offloading scheduler's linear tensor selection: tensors that the forward pass makes
// and the backward pass reads are offloaded to the SSD in the order in which the forward pass is
// done with them, until what stays, the weights and the largest op fit; weights and what else lives
// across steps is never offloaded; an offload starts at the last use in the forward pass; in the
// backward pass tensors are fetched in the order of need whenever memory beyond the largest op's
// needs is free, the next one waiting for the one before. Host memory is not used.
// Left out: compression and half precision of what is offloaded (phase 2 of the scheduler: a trace
// says nothing of contents), the allocator with two ends and its fragmentation, the wait for all
// offloads when the backward pass begins (here an op waits for the space that it needs itself).
// Where the selection is exhausted and the step still does not fit it fails, as in the paper.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "plan/gaps/decisions.h"
#include "plan/gaps/pressure.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

struct Offload {
  IdleGap gap;  // from the forward pass to the backward pass
  std::uint64_t bytes = 0;
};

class FlashNeuronPlanner {
 public:
  FlashNeuronPlanner(const Profile& profile, const Machine& machine, const PlanOptions& options)
      : profile_(profile),
        machine_(machine),
        options_(options),
        storages_(storages(profile)),
        footprint_(profile, {}, machine.granule_bytes),
        demand_(whole_demand(profile, storages_, footprint_)),
        largest_op_(std::ranges::max(demand_.must)) {}

  Plan plan();

 private:
  std::uint32_t backward() const;
  std::vector<Offload> offloadable() const;
  std::size_t selection(const std::vector<Offload>&) const;
  std::size_t smallest_fit(std::vector<Offload>&, std::size_t selected) const;
  std::vector<Decision> decisions(std::vector<Offload> selected) const;

  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  std::vector<Storage> storages_;
  Footprint footprint_;
  Demand demand_;
  std::uint64_t largest_op_;
};

// The first op of the backward pass; where no op is marked, memory is fullest when it begins.
std::uint32_t FlashNeuronPlanner::backward() const {
  const auto at =
      std::ranges::find_if(profile_.ops, [](const Op& op) { return op.phase != Phase::forward; });
  if (at == profile_.ops.end())
    return static_cast<std::uint32_t>(std::ranges::max_element(demand_.all) - demand_.all.begin());
  return static_cast<std::uint32_t>(at - profile_.ops.begin());
}

// In the order in which the forward pass is done with them.
std::vector<Offload> FlashNeuronPlanner::offloadable() const {
  const std::uint32_t begin = backward();
  std::vector<Offload> all;
  for (const IdleGap& gap : idle_gaps(profile_, storages_, machine_)) {
    const Storage& s = storages_[gap.storage];
    if (s.persistent || s.carried || !gap.needed || gap.use >= begin || gap.next < begin) continue;
    if (const std::uint64_t bytes = freed_bytes(footprint_, s); bytes > 0)
      all.push_back({gap, bytes});
  }
  std::ranges::stable_sort(all, {}, [](const Offload& o) { return o.gap.use; });
  return all;
}

// Linear tensor selection: how many of them are offloaded.
std::size_t FlashNeuronPlanner::selection(const std::vector<Offload>& all) const {
  const std::uint32_t begin = backward();
  std::uint64_t stays = largest_op_;
  for (const Storage& s : storages_)
    if (s.persistent || s.carried || (s.first < begin && s.last >= begin))
      stays += round_up(s.bytes, machine_.granule_bytes);
  std::size_t selected = 0;
  while (selected < all.size() && stays > options_.fast_bytes) stays -= all[selected++].bytes;
  return selected;
}

// The rule counts less than there is (gradients, what passes between ops): where the step does not
// fit with it, selection goes on until it does.
std::size_t FlashNeuronPlanner::smallest_fit(std::vector<Offload>& all,
                                             std::size_t selected) const {
  Level held(demand_.all);
  const auto leave = [&](const Offload& o) {
    held.add(o.gap.use + 1, o.gap.next, -static_cast<std::int64_t>(o.bytes));
  };
  for (std::size_t i = 0; i < selected; ++i) leave(all[i]);
  const auto limit = static_cast<std::int64_t>(options_.fast_bytes);
  const auto over = [&] { return held.last_above(0, held.ops(), limit); };
  while (selected < all.size() && over()) leave(all[selected++]);
  if (const auto op = over())
    throw Error(fmt::format(
        "flashneuron offloads only what the forward pass leaves for the backward pass; with all of "
        "it offloaded op {} ({}) still holds {}, {} are allowed",
        *op, profile_.ops[*op].name, print_bytes(static_cast<std::uint64_t>(held.at(*op))),
        print_bytes(options_.fast_bytes)));
  return selected;
}

// Fetches in the order of need, none before the one ahead of it.
std::vector<Decision> FlashNeuronPlanner::decisions(std::vector<Offload> selected) const {
  const std::uint32_t begin = backward();
  const StepTimes times(profile_);
  Pressure pressure(demand_.all, options_.fast_bytes - std::min(options_.fast_bytes, largest_op_),
                    times);
  for (const Offload& o : selected) pressure.release(o.gap.use + 1, o.gap.next, o.bytes);
  std::ranges::stable_sort(selected, {}, [](const Offload& o) { return o.gap.next; });
  std::vector<Decision> all;
  std::uint32_t fetch = begin;
  for (const Offload& o : selected) {
    const std::uint32_t earliest = std::min(std::max(fetch, o.gap.use + 2), o.gap.next);
    fetch = pressure.room_since(earliest, o.gap.next, o.bytes);
    pressure.hold(fetch, o.gap.next, o.bytes);
    all.push_back({.storage = o.gap.storage,
                   .use = o.gap.use,
                   .next = o.gap.next,
                   .remedy = Remedy::swap,
                   .tier = static_cast<std::uint32_t>(machine_.tiers.size()) - 1,
                   .fetch = fetch});
  }
  return all;
}

Plan FlashNeuronPlanner::plan() {
  std::vector<Offload> all;
  if (std::ranges::max(demand_.all) > options_.fast_bytes) {
    all = offloadable();
    all.resize(smallest_fit(all, selection(all)));
  }
  return decided_plan("flashneuron", profile_, machine_, options_, decisions(std::move(all))).plan;
}

class FlashNeuronPolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "flashneuron"; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (profile.ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
    return FlashNeuronPlanner(profile, machine, options).plan();
  }
};

}  // namespace

std::unique_ptr<Policy> make_flashneuron() { return std::make_unique<FlashNeuronPolicy>(); }

}  // namespace sentinel::plan
