// Finds legal chains of replays by the versions of their inputs.
#include "plan/step/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/units.h"
#include "plan/step/footprint.h"
#include "sentinel/analysis.h"

namespace sentinel::plan {
namespace {

constexpr std::size_t kMostViolations = 20;

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

}  // namespace

bool random(const Op& op) {
  static constexpr std::array<std::string_view, 14> kMarks{"scaled_dot_product",
                                                           "efficient_attention",
                                                           "flash_attention",
                                                           "cudnn_rnn",
                                                           "dropout",
                                                           "bernoulli",
                                                           "rand",
                                                           "normal_",
                                                           "uniform_",
                                                           "multinomial",
                                                           "exponential_",
                                                           "poisson",
                                                           "rrelu",
                                                           "gumbel"};
  const std::string name = lower(op.name);
  return std::ranges::any_of(kMarks, [&](std::string_view mark) {
    const auto at = name.find(mark);
    // The backward of a random op applies a saved mask, and draws nothing.
    return at != std::string::npos && name.find("backward") == std::string::npos;
  });
}

Replay::Replay(const Profile& profile)
    : writes_(profile.tensors.size()),
      last_(profile.tensors.size()),
      persistent_(profile.tensors.size(), false),
      possible_(profile.ops.size(), false),
      profile_(profile) {
  const auto lives = lifetimes(profile);
  for (std::size_t t = 0; t < lives.size(); ++t) {
    persistent_[t] = lives[t].persistent;
    last_[t] = lives[t].last_op;
  }
  for (std::uint32_t k = 0; k < profile.ops.size(); ++k) {
    const Op& op = profile.ops[k];
    for (TensorId t : op.out) writes_[t.index()].push_back(k);
  }
  for (std::uint32_t k = 0; k < profile.ops.size(); ++k) {
    const Op& op = profile.ops[k];
    possible_[k] = op.phase != Phase::optimizer && !op.in.empty() && !random(op);
  }
}

std::uint32_t Replay::version(TensorId t, OpId k) const {
  const auto& writes = writes_[t.index()];
  return static_cast<std::uint32_t>(std::ranges::lower_bound(writes, k.value) - writes.begin());
}

bool Replay::own_statistic(TensorId t, OpId op) const {
  return persistent_[t.index()] && std::ranges::binary_search(profile_.ops[op.index()].out, t);
}

bool Replay::inputs_valid(OpId r, OpId k, std::vector<TensorId>& dead) const {
  for (TensorId t : profile_.ops[r.index()].in) {
    if (own_statistic(t, r)) continue;
    if (version(t, r) != version(t, k)) return false;
    if (!alive(t, k)) dead.push_back(t);
  }
  return true;
}

std::optional<OpId> Replay::maker(TensorId t, OpId k) const {
  const std::uint32_t made = version(t, k);
  if (made == 0) return std::nullopt;
  return OpId(writes_[t.index()][made - 1]);
}

namespace {

// Depth first from the wanted tensor to makers whose inputs are all there.
class Chain {
 public:
  Chain(const Profile& profile, const Replay& replay, OpId before,
        const std::function<bool(TensorId)>& available, std::size_t most)
      : profile_(profile), replay_(replay), before_(before), available_(available), most_(most) {}

  bool add(TensorId wanted, OpId reader) {
    const auto maker = replay_.maker(wanted, reader);
    if (!maker || !replay_.possible(*maker)) return false;
    if (added_.contains(*maker)) return true;
    if (added_.size() >= most_) return false;
    added_.insert(*maker);
    for (TensorId input : profile_.ops[maker->index()].in) {
      if (replay_.own_statistic(input, *maker)) {
        if (!available_(input)) return false;  // its old contents do not matter, its memory does
        continue;
      }
      const bool same = replay_.version(input, *maker) == replay_.version(input, before_);
      if (same && available_(input)) continue;
      if (!add(input, *maker)) return false;
    }
    order_.push_back({.op = *maker, .before = before_});
    return true;
  }

  std::vector<Recompute> take() { return std::move(order_); }

 private:
  const Profile& profile_;
  const Replay& replay_;
  OpId before_;
  const std::function<bool(TensorId)>& available_;
  std::size_t most_;
  std::set<OpId> added_;
  std::vector<Recompute> order_;
};

}  // namespace

std::vector<Recompute> replay_chain(const Profile& profile, const Replay& replay, TensorId wanted,
                                    OpId before, const std::function<bool(TensorId)>& available,
                                    std::size_t most) {
  if (replay.persistent(wanted)) return {};
  Chain chain(profile, replay, before, available, most);
  if (!chain.add(wanted, before)) return {};
  auto order = chain.take();
  if (!order.empty()) order.back().keep = {wanted};
  return order;
}

namespace {

// What a run's replays take: from the one that keeps something back to those that make, among
// these, what it reads, unless that is kept.
std::vector<std::size_t> needed(const Profile& profile, std::span<const Recompute> replays,
                                std::size_t last) {
  std::vector<std::size_t> found{last};
  for (std::size_t next = 0; next < found.size(); ++next)
    for (TensorId t : profile.ops[replays[found[next]].op.index()].in) {
      if (!profile.tensors[t.index()].alloc_op) continue;  // a replay writes no such tensor
      std::size_t maker = found[next];
      while (maker > 0 &&
             !std::ranges::binary_search(profile.ops[replays[maker - 1].op.index()].out, t))
        --maker;
      if (maker-- == 0 || std::ranges::find(found, maker) != found.end()) continue;
      if (!std::ranges::binary_search(replays[maker].keep, t)) found.push_back(maker);
    }
  return found;
}

// What one run holds at most: what a replay makes or updates, until its last one there has run.
std::uint64_t most_held(const Profile& profile, std::span<const Recompute> replays,
                        const std::vector<std::size_t>& run) {
  constexpr std::uint64_t kPage = 4096;
  std::unordered_map<TensorId, std::size_t> last;  // the replay that uses it last
  for (std::size_t i : run) {
    const Op& op = profile.ops[replays[i].op.index()];
    for (const auto* list : {&op.in, &op.out})
      for (TensorId t : *list) last[t] = i;
  }
  std::unordered_map<TensorId, std::uint64_t> held;
  std::uint64_t sum = 0, most = 0;
  for (std::size_t i : run) {
    const Op& op = profile.ops[replays[i].op.index()];
    for (TensorId t : op.out) {
      const Tensor& tensor = profile.tensors[t.index()];
      if (!tensor.foreign && held.emplace(t, round_up(tensor.bytes, kPage)).second) sum += held[t];
    }
    most = std::max(most, sum);
    for (const auto* list : {&op.in, &op.out})
      for (TensorId t : *list)
        if (const auto found = held.find(t); found != held.end() && last[t] == i) {
          sum -= found->second;
          held.erase(found);
        }
  }
  return most;
}

std::uint64_t most_of_runs(const Profile& profile, std::span<const Recompute> replays,
                           std::uint64_t granule) {
  std::uint64_t most = 0;
  for (const auto& run : replay_runs(profile, replays))
    most = std::max(most, most_held(profile, replays, run));
  return round_up(most, granule);
}

}  // namespace

std::vector<std::vector<std::size_t>> replay_runs(const Profile& profile,
                                                  std::span<const Recompute> replays) {
  constexpr auto kNone = SIZE_MAX;
  std::vector<std::vector<std::size_t>> runs;
  std::vector<std::size_t> run_of(replays.size(), kNone);
  const auto close = [&](std::vector<std::size_t> run) {
    std::size_t first = runs.size();
    for (std::size_t i : run) first = std::min(first, run_of[i]);
    for (std::size_t r = first; r < runs.size(); ++r)
      run.insert(run.end(), runs[r].begin(), runs[r].end());
    runs.resize(first);
    std::ranges::sort(run);
    run.erase(std::unique(run.begin(), run.end()), run.end());
    for (std::size_t i : run) run_of[i] = first;
    runs.push_back(std::move(run));
  };
  for (std::size_t i = 0; i < replays.size(); ++i)
    if (!replays[i].keep.empty()) close(needed(profile, replays, i));
  std::vector<std::size_t> rest = runs.empty() ? std::vector<std::size_t>{} : runs.back();
  for (std::size_t i = 0; i < replays.size(); ++i)
    if (run_of[i] == kNone) rest.push_back(i);
  if (!rest.empty()) close(std::move(rest));
  return runs;
}

std::uint64_t replay_bytes(const Profile& profile, std::span<const Recompute> replays,
                           std::uint64_t granule) {
  if (shares_granules(granule)) return most_of_runs(profile, replays, granule);
  std::unordered_map<TensorId, std::size_t> last;  // made: the replay that reads it last
  for (std::size_t i = 0; i < replays.size(); ++i) {
    const Op& op = profile.ops[replays[i].op.index()];
    for (TensorId t : op.in)
      if (const auto found = last.find(t); found != last.end()) found->second = i;
    for (TensorId t : op.out) last[t] = i;
  }
  for (const Recompute& r : replays)  // held already
    for (TensorId t : r.keep) last.erase(t);
  std::vector<std::uint64_t> freed(replays.size(), 0);
  std::uint64_t held = 0, most = 0;
  for (std::size_t i = 0; i < replays.size(); ++i) {
    for (TensorId t : profile.ops[replays[i].op.index()].out) {
      const auto found = last.find(t);
      const Tensor& tensor = profile.tensors[t.index()];
      if (found == last.end() || tensor.foreign) continue;
      const std::uint64_t bytes = round_up(tensor.bytes, granule);
      held += bytes;
      freed[found->second] += bytes;
      last.erase(found);  // counted
    }
    most = std::max(most, held);
    held -= freed[i];
  }
  return most;
}

bool finds_its_versions(const Profile& profile, const Replay& replay,
                        std::span<const Recompute> replays) {
  std::unordered_map<TensorId, std::uint32_t> version;
  for (const Recompute& r : replays) {
    const Op& op = profile.ops[r.op.index()];
    for (TensorId t : op.in)
      if (const auto found = version.find(t);
          found != version.end() && found->second != replay.version(t, r.op))
        return false;
    for (TensorId t : op.out)
      if (!replay.persistent(t)) version[t] = replay.version(t, r.op) + 1;
  }
  return std::ranges::all_of(replays, [&](const Recompute& r) {
    return std::ranges::all_of(
        r.keep, [&](TensorId t) { return version[t] == replay.version(t, r.before); });
  });
}

namespace {

// What a training run cannot do, or would do wrongly: it replays in memory of its own, in which an
// op finds the latest version, and loses nothing over the step's end.
void add_live_rules(const Plan& plan, const Profile& profile, const Replay& replay,
                    std::vector<std::string>& bad) {
  for (std::size_t first = 0, last = 0; first < plan.recomputations.size(); first = last) {
    const OpId before = plan.recomputations[first].before;
    while (last < plan.recomputations.size() && plan.recomputations[last].before == before) ++last;
    const auto group = std::span(plan.recomputations).subspan(first, last - first);
    if (group.size() > kMostRecipes)
      bad.push_back(
          fmt::format("{} ops are replayed before op {}, more than the {} that a run "
                      "remembers",
                      group.size(), before.value, kMostRecipes));
    if (!finds_its_versions(profile, replay, group))
      bad.push_back(fmt::format("a replay before op {} reads what another one has overwritten",
                                before.value));
  }
  std::set<TensorId> kept;
  for (const Recompute& r : plan.recomputations) kept.insert(r.keep.begin(), r.keep.end());
  for (TensorId t : kept)
    if (const Tensor& tensor = profile.tensors[t.index()]; !tensor.alloc_op || !tensor.free_op)
      bad.push_back(fmt::format("tensor {} ({}) outlives the step, and is to be made again",
                                t.value, tensor.name));
}

}  // namespace

std::vector<std::string> illegal_replays(const Plan& plan, const Profile& profile) {
  std::vector<std::string> bad;
  const Replay replay(profile);
  const auto add = [&](const Recompute& r, const std::string& what) {
    if (bad.size() < kMostViolations)
      bad.push_back(
          fmt::format("the replay of op {} before op {}: {}", r.op.value, r.before.value, what));
  };
  const auto tensor = [&](TensorId t) {
    return fmt::format("tensor {} ({})", t.value, profile.tensors[t.index()].name);
  };
  OpId before;
  std::set<std::pair<TensorId, std::uint32_t>> remade;  // with its version, before this op
  for (const Recompute& r : plan.recomputations) {
    if (r.before >= OpId(profile.ops.size()) || r.op >= r.before) {
      add(r, "an op is replayed before a later one");
      continue;
    }
    if (r.before < before) add(r, "replays are not in order");
    if (r.before != before) remade.clear();
    before = r.before;
    const Op& op = profile.ops[r.op.index()];
    if (!replay.possible(r.op)) add(r, fmt::format("{} cannot be replayed at all", op.name));
    std::vector<TensorId> dead;
    for (TensorId t : op.in)
      if (!replay.own_statistic(t, r.op) && !remade.contains({t, replay.version(t, r.op)}) &&
          replay.version(t, r.op) != replay.version(t, r.before))
        add(r, tensor(t) + " has been overwritten since");
    if (replay.inputs_valid(r.op, r.before, dead))
      for (TensorId t : dead)
        if (!remade.contains({t, replay.version(t, r.op)}))
          add(r, tensor(t) + " is dead by then and not remade");
    for (TensorId t : r.keep) {
      if (replay.persistent(t))
        add(r, tensor(t) + " is kept, but a replay does not write what outlives the step");
      else if (!std::ranges::binary_search(op.out, t))
        add(r, tensor(t) + " is kept but no output of the op");
      else if (replay.version(t, r.before) != replay.version(t, r.op) + 1)
        add(r, tensor(t) + " is kept although its contents are wanted no longer");
    }
    for (TensorId t : op.out) remade.insert({t, replay.version(t, r.op) + 1});
  }
  if (bad.empty() && shares_granules(plan.granule_bytes))
    add_live_rules(plan, profile, replay, bad);
  return bad;
}

}  // namespace sentinel::plan
