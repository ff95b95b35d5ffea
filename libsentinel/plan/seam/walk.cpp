// The controller of every planned policy: it says the plan's moves at the ops that trigger them.
#include <algorithm>
#include <utility>

#include "sentinel/policy.h"

namespace sentinel {
namespace {

class PlanWalk final : public Controller {
 public:
  explicit PlanWalk(Plan plan) : plan_(std::move(plan)) {
    for (std::size_t i = 0; i < plan_.moves.size(); ++i) {
      const Move& move = plan_.moves[i];
      auto& lists = move.direction == Direction::promote ? at_start_ : at_end_;
      if (lists.size() <= move.trigger.index()) lists.resize(move.trigger.index() + 1);
      lists[move.trigger.index()].push_back(i);
    }
  }

  void op_start(OpId op, std::vector<Move>& out) override { say(at_start_, op, out); }
  void op_end(OpId op, std::vector<Move>& out) override { say(at_end_, op, out); }
  std::span<const Recompute> replays(OpId op) override {
    return std::ranges::equal_range(plan_.recomputations, op, {}, &Recompute::before);
  }
  std::uint32_t birth(TensorId t, bool) override {
    const auto at = std::ranges::lower_bound(plan_.births, t, {}, &Birth::tensor);
    return at != plan_.births.end() && at->tensor == t ? at->tier : 0;
  }

 private:
  using Lists = std::vector<std::vector<std::size_t>>;  // per op, indices into the plan's moves

  void say(const Lists& lists, OpId op, std::vector<Move>& out) const {
    if (op.index() >= lists.size()) return;
    for (std::size_t i : lists[op.index()]) out.push_back(plan_.moves[i]);
  }

  Plan plan_;
  Lists at_start_, at_end_;
};

}  // namespace

std::unique_ptr<Controller> walk(Plan plan) { return std::make_unique<PlanWalk>(std::move(plan)); }

}  // namespace sentinel
