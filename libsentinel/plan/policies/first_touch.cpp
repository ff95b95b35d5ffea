// Two policies that decide once, at birth, and never move anything: the baselines between which
// the Sentinel paper places its results (HPCA 2021, section VII-B).
//
// first-touch: the default NUMA policy of Linux (Documentation/admin-guide/mm/
// numa_memory_policy.rst, "local allocation"): a page comes from the processor's own node, the fast
// tier, as long as that has free pages, else from the next one. Modelled: a tensor is made in fast
// memory if all of it fits there at that moment, else in the slow tier; it stays there until it is
// freed, and the room is the next one's who asks. Tensors that live across steps are placed in the
// order in which the program made them. Left out: a tensor whose pages lie in both tiers, reclaim,
// and NUMA balancing.
//
// slow-only: everything lies in the slow tier; the paper's lower line.
//
// Both need a slower tier that ops can use in place; where there is none they refuse.
#include <fmt/format.h>

#include "plan/seam/in_place.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

class Placer final : public Controller {
 public:
  explicit Placer(bool fast) : fast_(fast) {}
  void op_start(OpId, std::vector<Move>&) override {}
  void op_end(OpId, std::vector<Move>&) override {}
  std::uint32_t birth(TensorId, bool room) override { return fast_ && room ? 0 : 1; }

 private:
  bool fast_;
};

class PlacementPolicy final : public OnlinePolicy {
 public:
  PlacementPolicy(std::string_view name, bool fast) : name_(name), fast_(fast) {}
  std::string_view name() const override { return name_; }

  std::unique_ptr<Controller> prepare(const Profile&, const Machine& machine,
                                      const PlanOptions& options) override {
    check_features(*this, options);
    require_in_place(name_, machine);
    return std::make_unique<Placer>(fast_);
  }

 private:
  std::string_view name_;
  bool fast_;
};

}  // namespace

std::unique_ptr<Policy> make_first_touch() {
  return std::make_unique<PlacementPolicy>("first-touch", true);
}
std::unique_ptr<Policy> make_slow_only() {
  return std::make_unique<PlacementPolicy>("slow-only", false);
}

}  // namespace sentinel::plan
