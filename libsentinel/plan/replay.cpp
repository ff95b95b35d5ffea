#include "plan/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

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
  static constexpr std::array<std::string_view, 10> kMarks{
      "dropout",     "bernoulli",    "rand",    "normal_", "uniform_",
      "multinomial", "exponential_", "poisson", "rrelu",   "gumbel"};
  const std::string name = lower(op.name);
  return std::ranges::any_of(kMarks, [&](std::string_view mark) {
    const auto at = name.find(mark);
    // The backward of a random op applies a saved mask, and draws nothing.
    return at != std::string::npos && name.find("backward") == std::string::npos;
  });
}

Replay::Replay(const Profile& profile)
    : writes_(profile.tensors.size()),
      last_use_(profile.tensors.size(), 0),
      persistent_(profile.tensors.size(), false),
      possible_(profile.ops.size(), false),
      profile_(profile) {
  const auto lives = lifetimes(profile);
  for (std::size_t t = 0; t < lives.size(); ++t) persistent_[t] = lives[t].persistent;
  for (std::uint32_t k = 0; k < profile.ops.size(); ++k) {
    const Op& op = profile.ops[k];
    for (TensorId t : op.in) last_use_[t.index()] = k;
    for (TensorId t : op.out) {
      last_use_[t.index()] = k;
      writes_[t.index()].push_back(k);
    }
  }
  for (std::uint32_t k = 0; k < profile.ops.size(); ++k) {
    const Op& op = profile.ops[k];
    const bool in_place = std::ranges::any_of(
        op.out, [&](TensorId t) { return std::ranges::binary_search(op.in, t); });
    possible_[k] = op.phase != Phase::optimizer && !op.in.empty() && !in_place && !random(op);
  }
}

std::uint32_t Replay::version(TensorId t, OpId k) const {
  const auto& writes = writes_[t.index()];
  return static_cast<std::uint32_t>(std::ranges::lower_bound(writes, k.value) - writes.begin());
}

bool Replay::inputs_valid(OpId r, OpId k, std::vector<TensorId>& dead) const {
  for (TensorId t : profile_.ops[r.index()].in) {
    if (version(t, r) != version(t, k)) return false;
    if (!persistent_[t.index()] && last_use_[t.index()] < k.value) dead.push_back(t);
  }
  return true;
}

std::optional<OpId> Replay::maker(TensorId t, OpId k) const {
  const std::uint32_t made = version(t, k);
  if (made == 0) return std::nullopt;
  return OpId(writes_[t.index()][made - 1]);
}

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
      if (!remade.contains({t, replay.version(t, r.op)}) &&
          replay.version(t, r.op) != replay.version(t, r.before))
        add(r, tensor(t) + " has been overwritten since");
    if (replay.inputs_valid(r.op, r.before, dead))
      for (TensorId t : dead)
        if (!remade.contains({t, replay.version(t, r.op)}))
          add(r, tensor(t) + " is dead by then and not remade");
    for (TensorId t : r.keep) {
      if (!std::ranges::binary_search(op.out, t))
        add(r, tensor(t) + " is kept but no output of the op");
      else if (replay.version(t, r.before) != replay.version(t, r.op) + 1)
        add(r, tensor(t) + " is kept although its contents are wanted no longer");
    }
    for (TensorId t : op.out) remade.insert({t, replay.version(t, r.op) + 1});
  }
  return bad;
}

}  // namespace sentinel::plan
