// Evicts, at each op that is over the limit, the open gap that ranks best there.
#include "plan/gaps/cover.h"

#include <algorithm>
#include <set>
#include <utility>

#include "plan/step/level.h"

namespace sentinel::plan {
namespace {

class Cover {
 public:
  explicit Cover(const CoverInput& in)
      : in_(in),
        ops_(static_cast<std::uint32_t>(in.held.size())),
        limit_(static_cast<std::int64_t>(in.limit)),
        level_(in.held),
        opening_(ops_),
        over_(ops_ + 1, 0) {
    for (std::uint32_t k = 0; k < ops_; ++k)
      over_[k + 1] = over_[k] + (in.held[k] > in.limit ? 1 : 0);
    for (std::uint32_t g = 0; g < in.gaps.size(); ++g)
      opening_[(in.gaps[g].use + 1) % ops_].push_back(g);
  }

  std::vector<std::uint32_t> run() {
    // Gaps over the step's end are open at op 0.
    for (std::uint32_t g = 0; g < in_.gaps.size(); ++g)
      if (in_.gaps[g].next > ops_ && in_.gaps[g].use + 1 < ops_) open(g, 0);
    for (std::uint32_t k = 0; k < ops_; ++k) {
      for (std::uint32_t g : opening_[k]) open(g, k);
      while (level_.at(k) > limit_ && evict_one(k)) {
      }
    }
    std::ranges::sort(taken_);
    taken_.erase(std::unique(taken_.begin(), taken_.end()), taken_.end());
    return std::move(taken_);
  }

 private:
  // The op at which it ends, seen from the present lap of ops.
  std::uint32_t end(std::uint32_t g, std::uint32_t k) const {
    const IdleGap& gap = in_.gaps[g];
    return k <= gap.use ? gap.next - ops_ : std::min(gap.next, ops_);
  }

  void open(std::uint32_t g, std::uint32_t k) {
    const std::uint32_t last = end(g, k);
    if (last <= k) return;
    const IdleGap& gap = in_.gaps[g];
    double rank = -static_cast<double>(gap.next) + (k <= gap.use ? ops_ : 0);
    if (!in_.cost.empty()) {
      // What crosses the step's end helps after it too.
      const std::uint32_t after = gap.next > ops_ && k > gap.use ? over_[gap.next - ops_] : 0;
      const auto helps = static_cast<double>(over_[last] - over_[k] + after);
      rank = in_.cost[g] / std::max(helps, 0.5);
    }
    open_.emplace(rank, g);
  }

  bool evict_one(std::uint32_t k) {
    while (!open_.empty()) {
      const std::uint32_t g = open_.begin()->second;
      open_.erase(open_.begin());
      if (end(g, k) <= k) continue;
      const IdleGap& gap = in_.gaps[g];
      level_.add(gap.use + 1, gap.next, -static_cast<std::int64_t>(gap.bytes));
      taken_.push_back(g);
      return true;
    }
    return false;
  }

  const CoverInput& in_;
  std::uint32_t ops_;
  std::int64_t limit_;
  Level level_;
  std::vector<std::vector<std::uint32_t>> opening_;  // per op, gaps that begin there
  std::vector<std::uint32_t> over_;                  // ops over the limit before op k
  std::set<std::pair<double, std::uint32_t>> open_;  // by rank
  std::vector<std::uint32_t> taken_;
};

}  // namespace

std::vector<std::uint32_t> cover(const CoverInput& in) {
  if (in.held.empty()) return {};
  return Cover(in).run();
}

}  // namespace sentinel::plan
