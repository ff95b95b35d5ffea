// vDNN (Rhu et al., "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural
// Network Design", MICRO 2016).
//
// Modelled: only feature maps move, that is what the forward pass made and both passes read. Their
// last layer in the forward pass offloads them to the host, and the next one has ended before their
// space is taken to be free. At the start of each layer of the backward pass one layer's maps are
// prefetched: those of the nearest layer ahead that has any away, searched no farther than the next
// convolution, so that they do not come too early. vDNN_conv offloads the inputs of convolutions
// alone, vDNN_all every one; vDNN_dyn is the policy here: nothing if everything fits, else conv,
// else all. Without "dynamic" it is vDNN_all whether it fits or not.
//
// Left out: the choice of convolution algorithms (the trace's are kept), the wait for each offload
// at its layer's end although there is room (here only where there is none), weights and gradients
// (vDNN never moves them, so that a budget below what they need is refused).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "base/units.h"
#include "plan/gaps/absence.h"
#include "plan/gaps/decisions.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

constexpr std::string_view kDynamic = "dynamic";
constexpr std::array kFeatures{kDynamic};

bool convolves(const Op& op) {
  std::string name = op.name;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("conv") != std::string::npos;
}

class Vdnn {
 public:
  Vdnn(const Profile& profile, const Machine& machine)
      : profile_(profile), absences_(profile, machine), backward_(first_backward()) {
    for (std::uint32_t k = 0; k < profile.ops.size(); ++k) {
      if (k == 0 || profile.ops[k].layer != profile.ops[k - 1].layer) layers_.push_back(k);
      layer_of_.push_back(static_cast<std::uint32_t>(layers_.size() - 1));
      if (layers_.size() > convolution_.size()) convolution_.push_back(false);
      convolution_.back() = convolution_.back() || convolves(profile.ops[k]);
    }
    find_maps();
  }

  std::vector<Decision> offload(bool all) const {
    std::vector<std::uint32_t> fetch(absences_.gaps().size(), UINT32_MAX);
    prefetch(all, fetch);
    std::vector<Decision> decisions;
    for (const Map& map : maps_) {
      if (!all && !map.of_convolution) continue;
      const IdleGap& gap = absences_.gaps()[map.gap];
      decisions.push_back({.storage = gap.storage,
                           .use = gap.use,
                           .next = gap.next,
                           .remedy = Remedy::swap,
                           .fetch = std::min(fetch[map.gap], gap.next)});
    }
    return decisions;
  }

  // With all maps offloaded, and prefetched as early as they can be.
  std::uint64_t least_peak() {
    const auto decisions = offload(true);
    for (std::size_t i = 0; i < maps_.size(); ++i)
      absences_.leave(maps_[i].gap, decisions[i].use + 2, decisions[i].fetch);
    const std::uint64_t peak = absences_.peak();
    for (const Map& map : maps_) absences_.stay(map.gap);
    return peak;
  }
  std::uint64_t peak() const { return absences_.peak(); }

 private:
  struct Map {
    std::uint32_t gap;  // between its last use forward and its first use backward
    bool of_convolution;
  };

  // Where the trace tells no phases, the backward pass begins where most is alive.
  std::uint32_t first_backward() const {
    for (std::uint32_t k = 0; k < profile_.ops.size(); ++k)
      if (profile_.ops[k].phase == Phase::backward) return k;
    const auto live = live_bytes(profile_);
    return static_cast<std::uint32_t>(std::ranges::max_element(live) - live.begin());
  }

  void find_maps() {
    for (std::uint32_t g = 0; g < absences_.gaps().size(); ++g) {
      const IdleGap& gap = absences_.gaps()[g];
      const Storage& s = absences_.storage_of(g);
      if (s.persistent || s.carried || !gap.needed) continue;
      if (gap.use >= backward_ || gap.next < backward_) continue;
      const bool convolution = std::ranges::any_of(s.uses, [&](std::uint32_t use) {
        return use < backward_ && convolves(profile_.ops[use]) &&
               std::ranges::binary_search(profile_.ops[use].in, s.tensor);
      });
      maps_.push_back({g, convolution});
    }
  }

  void prefetch(bool all, std::vector<std::uint32_t>& fetch) const {
    std::vector<std::vector<std::uint32_t>> away(layers_.size());  // gaps, by layer of next use
    for (const Map& map : maps_)
      if (all || map.of_convolution)
        away[layer_of_[absences_.gaps()[map.gap].next]].push_back(map.gap);
    std::uint32_t ahead = 0, next_convolution = 0;
    for (std::uint32_t layer = layer_of_[backward_]; layer < layers_.size(); ++layer) {
      ahead = std::max(ahead, layer + 1);
      while (ahead < layers_.size() && away[ahead].empty()) ++ahead;
      if (ahead == layers_.size()) return;
      next_convolution = std::max(next_convolution, layer + 1);
      while (next_convolution < layers_.size() && !convolution_[next_convolution])
        ++next_convolution;
      if (ahead > next_convolution) continue;
      for (std::uint32_t gap : away[ahead]) fetch[gap] = layers_[layer];
      away[ahead].clear();
    }
  }

  const Profile& profile_;
  Absences absences_;
  std::uint32_t backward_;
  std::vector<std::uint32_t> layers_;    // first op of each run of one layer
  std::vector<std::uint32_t> layer_of_;  // per op
  std::vector<bool> convolution_;        // per layer
  std::vector<Map> maps_;
};

class VdnnPolicy final : public PlannedPolicy {
 public:
  std::string_view name() const override { return "vdnn"; }
  std::span<const std::string_view> features() const override { return kFeatures; }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (profile.ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
    Vdnn vdnn(profile, machine);
    if (!uses(options, kDynamic)) return fixed(vdnn, profile, machine, options);
    if (vdnn.peak() <= options.fast_bytes)
      return decided_plan(name(), profile, machine, options, {}).plan;
    for (const bool all : {false, true})
      if (auto plan = attempt(vdnn.offload(all), profile, machine, options)) return *plan;
    throw Error(fmt::format(
        "vdnn moves feature maps alone, and with all of them offloaded {} of fast memory are held; "
        "{} are allowed",
        print_bytes(vdnn.least_peak()), print_bytes(options.fast_bytes)));
  }

 private:
  std::optional<Plan> attempt(const std::vector<Decision>& decisions, const Profile& profile,
                              const Machine& machine, const PlanOptions& options) const {
    try {
      return decided_plan(name(), profile, machine, options, decisions).plan;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // Everything is offloaded, whatever the budget: the plan is made for what it then holds.
  Plan fixed(Vdnn& vdnn, const Profile& profile, const Machine& machine,
             const PlanOptions& options) const {
    PlanOptions own = options;
    own.fast_bytes = std::min(options.fast_bytes, vdnn.least_peak());
    Plan plan = decided_plan(name(), profile, machine, own, vdnn.offload(true)).plan;
    plan.fast_bytes = options.fast_bytes;
    return plan;
  }
};

}  // namespace

std::unique_ptr<Policy> make_vdnn() { return std::make_unique<VdnnPolicy>(); }

}  // namespace sentinel::plan
