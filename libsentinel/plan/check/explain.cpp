// Puts a plan into words: its budget, its pools, the movers, and one tensor's fate.
#include "plan/check/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "plan/check/made_again.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

constexpr std::size_t kTopMovers = 10, kCurveRows = 16, kCurveWidth = 40, kSimilarNames = 5;

using Text = fmt::memory_buffer;

template <class... Args>
void line(Text& text, fmt::format_string<Args...> format, Args&&... args) {
  // Names and reasons are of files.
  text.append(printable(fmt::format(format, std::forward<Args>(args)...)));
  text.push_back('\n');
}

const char* pool_name(Pool pool) {
  switch (pool) {
    case Pool::short_lived:
      return "short-lived, never migrated";
    case Pool::resident:
      return "small long-lived, never migrated";
    case Pool::long_lived:
      return "long-lived";
    case Pool::persistent:
      return "persistent";
    case Pool::mixed:
      return "long-lived of any lifetime";
  }
  return "";
}

void describe_budget(Text& text, const Plan& plan) {
  line(text, "plan of policy {} for {} on {}", plan.policy,
       plan.model.empty() ? "a model" : plan.model, plan.machine);
  line(text, "  fast memory   {} allowed, {} used at most, {} of it kept free for transfers",
       print_bytes(plan.fast_bytes), print_bytes(plan.peak_fast_bytes),
       print_bytes(plan.frame_pool_bytes));
  if (plan.smallest_budget > 0)
    line(text, "  smallest      {} at all, {} without streaming; paper's bound (IV-E) {}",
         print_bytes(plan.smallest_budget), print_bytes(plan.smallest_unstreamed_budget),
         print_bytes(plan.paper_bound));
  line(text, "  step          {} predicted", print_us(plan.predicted_step_us));
  if (plan.moves.empty()) line(text, "  everything fits: nothing moves");
  if (!plan.streamed_ops.empty())
    line(text, "  streamed ops  {}: their working set exceeds the budget",
         plan.streamed_ops.size());
}

void describe_pools(Text& text, const Plan& plan) {
  struct Sum {
    std::size_t groups = 0;
    std::uint64_t bytes = 0;
  };
  std::map<Pool, Sum> pools;
  for (const Group& g : plan.groups) {
    ++pools[g.pool].groups;
    pools[g.pool].bytes += g.bytes;
  }
  line(text, "pools (addresses, in granules of {})", print_bytes(plan.granule_bytes));
  for (const auto& [pool, sum] : pools)
    line(text, "  {:<34} {:>10}  {} group{}", pool_name(pool), print_bytes(sum.bytes), sum.groups,
         sum.groups == 1 ? "" : "s");
}

void plot_curve(Text& text, const Plan& plan) {
  if (plan.curve.empty()) return;
  double worst = 0;
  for (const IntervalPoint& p : plan.curve) worst = std::max(worst, p.exposed_us);
  line(text, "migration interval: {} layers", plan.interval_layers);
  line(text, "  layers   exposed");
  const std::size_t stride = (plan.curve.size() + kCurveRows - 1) / kCurveRows;
  for (std::size_t i = 0; i < plan.curve.size(); ++i) {
    const IntervalPoint& p = plan.curve[i];
    const bool chosen = p.layers == plan.interval_layers;
    if (i % stride != 0 && !chosen) continue;
    const auto width = worst > 0 ? static_cast<std::size_t>(p.exposed_us / worst * kCurveWidth) : 0;
    line(text, "  {:>6} {:>9} |{:<{}}{}{}", p.layers, print_us(p.exposed_us),
         std::string(width, '#'), kCurveWidth, chosen ? " <- chosen" : "",
         p.fits ? "" : " does not fit (Equation 1)");
  }
}

void describe_movers(Text& text, const Plan& plan, const Profile& profile) {
  std::map<std::uint32_t, std::uint64_t> moved;
  for (const Move& m : plan.moves)
    if (m.direction != Direction::copy && m.tensor.index() < profile.tensors.size())
      moved[m.tensor.value] =
          saturated_sum(moved[m.tensor.value], profile.tensors[m.tensor.index()].bytes);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
  for (const auto& [tensor, bytes] : moved) order.push_back({bytes, tensor});
  std::sort(order.begin(), order.end(), [](auto a, auto b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  if (order.empty()) return;
  line(text, "what moves most, of {} tensors that move", order.size());
  for (std::size_t i = 0; i < std::min(order.size(), kTopMovers); ++i)
    line(text, "  {:>10}  #{} {}", print_bytes(order[i].first), order[i].second,
         profile.tensors[order[i].second].name);
}

void describe_replays(Text& text, const Plan& plan, const Profile& profile) {
  if (const auto why = why_no_replays(plan.machine, profile.meta); !why.empty())
    line(text, "no replays: {}", why);
  if (plan.recomputations.empty()) return;
  double us = 0;
  for (const Recompute& r : plan.recomputations)
    if (r.op.index() < profile.ops.size()) us += profile.ops[r.op.index()].us;
  line(text, "what is made again, by {} replay{} of {} a step", plan.recomputations.size(),
       plan.recomputations.size() == 1 ? "" : "s", print_us(us));
  std::set<TensorId> again;
  for (const Recompute& r : plan.recomputations) again.insert(r.keep.begin(), r.keep.end());
  for (const Move& m : plan.moves)
    if (m.direction == Direction::discard && again.contains(m.tensor) &&
        m.tensor.index() < profile.tensors.size())
      line(text, "  {:>10}  #{} {}: {}", print_bytes(profile.tensors[m.tensor.index()].bytes),
           m.tensor.value, profile.tensors[m.tensor.index()].name, m.reason);
}

std::string op_name(const Profile& profile, OpId op) {
  return fmt::format("op {} ({})", op.value,
                     op.index() < profile.ops.size() ? profile.ops[op.index()].name : "?");
}

void describe_place(Text& text, const Plan& plan, const Profile& profile, TensorId id) {
  const auto found = std::find_if(plan.placements.begin(), plan.placements.end(),
                                  [&](const Placement& p) { return p.tensor == id; });
  if (profile.tensors[id.index()].foreign) {
    line(text, "  lies in memory that Sentinel did not hand out: never moved");
  } else if (found == plan.placements.end()) {
    line(text, "  keeps the address it had before the plan was made");
  } else if (found->group.index() < plan.groups.size()) {
    const Group& g = plan.groups[found->group.index()];
    line(text, "  lies at {} of the region, group {} ({}): {}", found->offset, found->group.value,
         pool_name(g.pool), g.reason);
  }
}

std::string_view issued(Direction direction) {
  switch (direction) {
    case Direction::promote:
      return "promoted at the start";
    case Direction::demote:
      return "demoted at the end";
    case Direction::discard:
      return "discarded at the end";
    case Direction::copy:
      return "copied from the end";
    case Direction::release:
      return "given up at the end";
  }
  return "";
}

void describe_moves(Text& text, const Plan& plan, const Profile& profile, TensorId id) {
  bool any = false;
  for (const Move& m : plan.moves) {
    if (m.tensor != id) continue;
    any = true;
    line(text, "  {} of {}: {}", issued(m.direction), op_name(profile, m.trigger), m.reason);
  }
  if (!any) line(text, "  does not move");
}

void describe_tensor(Text& text, const Plan& plan, const Profile& profile, TensorId id) {
  const Tensor& tensor = profile.tensors[id.index()];
  const Lifetime life = lifetimes(profile)[id.index()];
  const TensorCount count = counts(profile)[id.index()];
  line(text, "#{} {}: {}, {}", id.value, tensor.name, print_bytes(tensor.bytes),
       life.persistent ? std::string("persistent")
                       : fmt::format("alive from {} to {}", op_name(profile, life.first_op),
                                     op_name(profile, life.last_op)));
  line(text, "  counted {} reads and {} writes, hotness {:.3g}", count.reads, count.writes,
       count.hotness);
  describe_place(text, plan, profile, id);
  describe_moves(text, plan, profile, id);
}

std::vector<TensorId> find_tensors(const Profile& profile, std::string_view wanted) {
  std::vector<TensorId> found;
  for (std::size_t t = 0; t < profile.tensors.size(); ++t)
    if (profile.tensors[t].name == wanted) found.emplace_back(t);
  if (!found.empty()) return found;
  const std::string_view digits = wanted.starts_with('#') ? wanted.substr(1) : wanted;
  std::size_t id = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (ec == std::errc() && end == digits.data() + digits.size() && id < profile.tensors.size())
    found.emplace_back(id);
  return found;
}

std::string similar_names(const Profile& profile, std::string_view wanted) {
  std::string names;
  std::size_t count = 0;
  for (const Tensor& t : profile.tensors)
    if (!t.name.empty() && t.name.find(wanted) != std::string::npos && count++ < kSimilarNames)
      names += (names.empty() ? "" : ", ") + t.name;
  return names.empty() ? "" : "; similar: " + names;
}

}  // namespace

std::string explain(const Plan& plan, const Profile& profile) {
  Text text;
  describe_budget(text, plan);
  describe_pools(text, plan);
  plot_curve(text, plan);
  describe_movers(text, plan, profile);
  describe_replays(text, plan, profile);
  return fmt::to_string(text);
}

std::string explain_tensor(const Plan& plan, const Profile& profile, std::string_view tensor) {
  const auto found = find_tensors(profile, tensor);
  if (found.empty())
    throw Error(
        fmt::format("no tensor \"{}\" in this profile{}", tensor, similar_names(profile, tensor)));
  Text text;
  for (TensorId id : found) describe_tensor(text, plan, profile, id);
  return fmt::to_string(text);
}

}  // namespace sentinel::plan
