// Finds versions and gaps of storages, and cuts the step into intervals of equal time.
#include "plan/bound/bound_model.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "plan/step/replay_cost.h"
#include "sentinel/analysis.h"

namespace sentinel::plan {
namespace {

constexpr std::size_t kMostPassing = 100;  // the largest ones of the step

struct Use {
  std::uint32_t position;
  bool read, written, streamed;
};

class BoundFacts {
 public:
  BoundFacts(const Profile& profile, const Machine& machine, std::uint64_t fast_bytes,
             bool recompute)
      : profile_(profile),
        exclusive_(machine.exclusive),
        ops_(static_cast<std::uint32_t>(profile.ops.size())),
        idle_change_(2 * std::size_t{ops_} + 1, 0) {
    facts_.storages = storages(profile);
    find_operands(machine.granule_bytes, fast_bytes);
    saved_.assign(facts_.storages.size(), false);
    if (recompute) replays_.emplace(profile);
    if (recompute) find_saved();
  }

  StepFacts run() {
    for (std::uint32_t i = 0; i < facts_.storages.size(); ++i) add_versions(i);
    for (const OperandBytes& bytes : facts_.operands) facts_.retained_bytes.push_back(bytes.sum());
    double idle = 0;
    for (std::size_t p = 0; p < 2 * std::size_t{ops_}; ++p) {
      idle += idle_change_[p];
      facts_.retained_bytes[p % ops_] += idle;
    }
    return std::move(facts_);
  }

 private:
  // An op is streamed only where its operands, on granules that they share with others at both
  // ends, exceed the budget.
  void find_operands(std::uint64_t granule, std::uint64_t fast_bytes) {
    facts_.operands.assign(ops_, {});
    std::vector<double> rounded(ops_, 0);
    for (const Storage& s : facts_.storages)
      for (std::uint32_t use : s.uses) {
        OperandBytes& of = facts_.operands[use % ops_];
        const bool read = reads(profile_, s, use), written = writes(profile_, s, use);
        (!written ? of.read : read ? of.updated : of.written) += static_cast<double>(s.bytes);
        rounded[use % ops_] += static_cast<double>(s.bytes + 2 * granule);
      }
    const auto budget = static_cast<double>(fast_bytes);
    for (double bytes : rounded) facts_.streamed.push_back(bytes > budget);
    auto& passing = facts_.passing;
    for (std::uint32_t k = 0; k < ops_; ++k)
      if (facts_.operands[k].sum() > budget) passing.push_back(k);
    std::ranges::stable_sort(passing, std::greater(),
                             [&](std::uint32_t k) { return facts_.operands[k].sum(); });
    passing.resize(std::min(passing.size(), kMostPassing));
    std::ranges::sort(passing);
  }

  // A streamed replay leaves its operands in a slower tier without a transfer.
  void find_saved() {
    for (std::uint32_t i = 0; i < facts_.storages.size(); ++i)
      saved_[i] = std::ranges::any_of(facts_.storages[i].uses, [&](std::uint32_t use) {
        return facts_.streamed[use % ops_] && replays_->possible(OpId(use % ops_));
      });
  }

  std::vector<Use> uses_of(const Storage& s) const {
    std::vector<Use> uses;
    for (std::uint32_t position : s.uses) {
      const Op& op = profile_.ops[position % ops_];
      const TensorId t = s.at(position, ops_);
      const bool out = std::ranges::binary_search(op.out, t);
      const bool in = std::ranges::binary_search(op.in, t) || !out;
      uses.push_back({position, in, out, static_cast<bool>(facts_.streamed[position % ops_])});
    }
    // What lives across steps goes on with the next step's uses, and begins where it is written.
    if (s.persistent && !uses.empty()) {
      auto writer = std::ranges::find_if(uses, &Use::written);
      const bool written = writer != uses.end();
      const auto before = written ? writer - uses.begin() : 0;
      const auto once = uses;
      for (Use use : once) {
        use.position += ops_;
        uses.push_back(use);
      }
      uses.erase(uses.begin(), uses.begin() + before);
      uses.resize(once.size() + 1);
    }
    return uses;
  }

  void add_versions(std::uint32_t storage) {
    const Storage& s = facts_.storages[storage];
    const auto uses = uses_of(s);
    if (uses.empty()) return;
    // What is never written counts as copied on exclusive tiers too: when its copy of the step
    // before could have been made is not said here.
    const bool always = saved_[storage] || (s.persistent && !uses.front().written);
    Version version{.storage = storage};
    std::uint32_t made = 0;  // by the op that wrote last
    for (std::size_t u = 0; u + 1 < uses.size(); ++u) {
      const bool begins = u == 0 || uses[u].written;
      if (begins) made = uses[u].position;
      if (begins || uses[u].streamed) {
        add(std::move(version));
        version = {
            .storage = storage, .made = uses[u].position, .copied = uses[u].streamed || always};
      } else if (exclusive_) {
        add(version);
        version.gaps.clear();
        version.made = made;
        version.copied = always;
      }
      if (uses[u + 1].read) add_gap(version, s, uses[u], uses[u + 1]);
    }
    add(std::move(version));
  }

  void add_gap(Version& version, const Storage& s, const Use& use, const Use& next) {
    if (next.position <= use.position + 1) return;
    idle_change_[use.position + 1] += static_cast<double>(s.bytes);
    idle_change_[next.position] -= static_cast<double>(s.bytes);
    version.gaps.push_back({use.position, next.position, !next.streamed, {}});
    if (replays_ && next.position < ops_)
      version.gaps.back().replays = replays_->making(s.tensor, OpId(use.position + 1));
  }

  void add(Version version) {
    if (version.gaps.empty()) return;
    for (std::size_t g = 0; g < version.gaps.size() && version.made >= ops_; ++g) {
      version.gaps[g].use -= ops_;
      version.gaps[g].next -= ops_;
    }
    version.made %= ops_;
    facts_.versions.push_back(std::move(version));
  }

  const Profile& profile_;
  bool exclusive_;  // each gap needs a copy of its own
  std::uint32_t ops_;
  std::optional<ReplayCost> replays_;
  std::vector<bool> saved_;          // per storage
  std::vector<double> idle_change_;  // per position: wanted idle bytes from here on
  StepFacts facts_;
};

}  // namespace

StepFacts step_facts(const Profile& profile, const Machine& machine, std::uint64_t fast_bytes,
                     bool recompute) {
  return BoundFacts(profile, machine, fast_bytes, recompute).run();
}

namespace {

// Cuts the step where there is most to do, again and again.
class Cutting {
 public:
  Cutting(const Profile& profile, const StepFacts& facts) : facts_(facts) {
    double us = ideal_us(profile), bytes = 0;
    for (const OperandBytes& operands : facts.operands) bytes += operands.sum();
    sum_.push_back(0);
    for (std::size_t k = 0; k < profile.ops.size(); ++k)
      sum_.push_back(sum_.back() + (us > 0 ? profile.ops[k].us / us : 0) +
                     (bytes > 0 ? facts.operands[k].sum() / bytes : 0) +
                     1.0 / static_cast<double>(profile.ops.size()));
  }

  std::vector<std::uint32_t> run(std::uint32_t count) {
    const auto ops = static_cast<std::uint32_t>(sum_.size() - 1);
    add(0, ops);
    std::vector<std::uint32_t> chosen;
    while (!parts_.empty() && parts_.size() + chosen.size() < count) {
      const auto [weight, begin, end] = parts_.top();
      parts_.pop();
      if (end - begin == 1) {
        chosen.push_back(most(begin, end));
        continue;
      }
      const std::uint32_t middle = half(begin, end);
      add(begin, middle);
      add(middle, end);
    }
    for (; !parts_.empty(); parts_.pop())
      chosen.push_back(most(std::get<1>(parts_.top()), std::get<2>(parts_.top())));
    std::erase_if(chosen, [&](std::uint32_t k) { return facts_.streamed[k]; });
    chosen.insert(chosen.end(), facts_.passing.begin(), facts_.passing.end());
    std::ranges::sort(chosen);
    return chosen;
  }

 private:
  void add(std::uint32_t begin, std::uint32_t end) {
    if (begin < end) parts_.push({sum_[end] - sum_[begin], begin, end});
  }

  std::uint32_t half(std::uint32_t begin, std::uint32_t end) const {
    const double middle = (sum_[begin] + sum_[end]) / 2;
    const auto at = std::upper_bound(sum_.begin() + begin, sum_.begin() + end, middle);
    return std::clamp(static_cast<std::uint32_t>(at - sum_.begin()), begin + 1, end - 1);
  }

  std::uint32_t most(std::uint32_t begin, std::uint32_t end) const {
    const auto key = [&](std::uint32_t k) {
      return std::tuple(!facts_.streamed[k], facts_.retained_bytes[k]);
    };
    std::uint32_t best = begin;
    for (std::uint32_t k = begin; k < end; ++k)
      if (key(k) > key(best)) best = k;
    return best;
  }

  const StepFacts& facts_;
  std::vector<double> sum_;  // of the ops' weights
  std::priority_queue<std::tuple<double, std::uint32_t, std::uint32_t>> parts_;
};

}  // namespace

Buckets::Buckets(const Profile& profile, const StepFacts& facts, std::uint32_t count)
    : ops_(static_cast<std::uint32_t>(profile.ops.size())),
      checkpoints_(Cutting(profile, facts).run(std::max(count, 1u))),
      us_(checkpoints_.size(), 0) {
  for (std::uint32_t k = 0; k < ops_ && size() > 0; ++k)
    us_[of_start(k) % size()] += profile.ops[k].us;
}

std::uint32_t Buckets::of_start(std::uint32_t position) const {
  const auto at = std::ranges::lower_bound(checkpoints_, position % ops_);
  return position / ops_ * size() + static_cast<std::uint32_t>(at - checkpoints_.begin());
}

std::uint32_t Buckets::of_end(std::uint32_t position) const { return of_start(position + 1); }

}  // namespace sentinel::plan
