// Improved active list: Z. Yan, D. Lustig, D. Nellans, A. Bhattacharjee, "Nimble Page Management
// for Tiered Memory Systems", ASPLOS 2019, as the Sentinel paper compares with it (HPCA 2021,
// section VII-B).
//
// Modelled: each tier has an active and an inactive list, first in first out, new pages at the
// active one's tail. A scan goes through the older half of every list: on the active list a
// referenced page goes to the tail, an unreferenced one to the inactive list; on the inactive list
// a referenced page goes back to the active one. Then pages of the slow tier's active list are
// moved to fast memory, into free room or in exchange for inactive pages of the fast tier, as long
// as there are any. New pages are placed by first touch. The unit is the tensor, whose pages are
// used together.
// Left out: pages of one tensor apart, huge pages, the processor time that copying takes (the
// paper's multi-threaded copies reach the links' bandwidth, and so do moves here).
//
// The published launcher scans every five seconds, longer than many whole steps; here a step is
// scanned kScans times, evenly in time, whatever its length.
#include <algorithm>
#include <list>
#include <utility>

#include "base/units.h"
#include "plan/seam/in_place.h"
#include "plan/step/storage.h"
#include "sentinel/analysis.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

constexpr std::uint32_t kScans = 10;

class ActiveLists final : public Controller {
 public:
  ActiveLists(const Profile& profile, const Machine& machine, const PlanOptions& options)
      : storages_(storages(profile)),
        free_(options.fast_bytes),
        granule_(machine.granule_bytes),
        of_(profile.tensors.size(), kNone),
        pages_(storages_.size()),
        used_(profile.ops.size()),
        dies_(profile.ops.size()),
        scan_after_(profile.ops.size(), false) {
    const auto ops = static_cast<std::uint32_t>(profile.ops.size());
    for (std::uint32_t i = 0; i < storages_.size(); ++i) {
      const Storage& s = storages_[i];
      of_[s.tensor.index()] = i;
      if (s.carried) of_[s.carried->index()] = i;
      for (std::uint32_t use : s.uses) used_[use % ops].push_back(i);
      if (!s.persistent) dies_[s.last % ops].push_back(i);
    }
    choose_scans(profile);
  }

  void op_start(OpId, std::vector<Move>&) override {}

  void op_end(OpId op, std::vector<Move>& out) override {
    for (std::uint32_t i : used_[op.index()]) pages_[i].referenced = true;
    for (std::uint32_t i : dies_[op.index()]) remove(i);
    if (!scan_after_[op.index()]) return;
    for (int tier : {0, 1}) {
      age_active(tier);
      age_inactive(tier);
    }
    exchange(op, out);
  }

  std::uint32_t birth(TensorId t, bool room) override {
    const std::uint32_t i = of_[t.index()];
    if (i == kNone) return 0;
    Page& page = pages_[i];
    if (page.listed) return page.tier;
    page = {.tier = room && free_ >= bytes(i) ? 0u : 1u, .listed = true, .active = true};
    if (page.tier == 0) free_ -= bytes(i);
    page.at = list(i).insert(list(i).end(), i);
    return page.tier;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  using List = std::list<std::uint32_t>;
  struct Page {  // all of a storage
    std::uint32_t tier = 1;
    bool listed = false, active = false, referenced = false;
    List::iterator at = {};
  };

  std::uint64_t bytes(std::uint32_t i) const { return round_up(storages_[i].bytes, granule_); }
  List& list(std::uint32_t i) { return lists_[pages_[i].tier][pages_[i].active]; }

  void choose_scans(const Profile& profile) {
    const double period = ideal_us(profile) / kScans;
    double passed = 0;
    std::uint32_t scans = 0;
    for (std::size_t k = 0; k < profile.ops.size(); ++k) {
      passed += profile.ops[k].us;
      if (passed < (scans + 1) * period) continue;
      scan_after_[k] = true;
      scans = static_cast<std::uint32_t>(passed / period);
    }
  }

  void append(std::uint32_t i, bool active) {
    List& from = list(i);
    pages_[i].active = active;
    List& to = list(i);
    to.splice(to.end(), from, pages_[i].at);
  }

  void remove(std::uint32_t i) {
    if (!pages_[i].listed) return;
    list(i).erase(pages_[i].at);
    if (pages_[i].tier == 0) free_ += bytes(i);
    pages_[i] = {};
  }

  void age_active(int tier) {
    for (std::size_t n = (lists_[tier][1].size() + 1) / 2; n > 0; --n) {
      const std::uint32_t i = lists_[tier][1].front();
      append(i, std::exchange(pages_[i].referenced, false));
    }
  }

  void age_inactive(int tier) {
    for (std::size_t n = (lists_[tier][0].size() + 1) / 2; n > 0; --n) {
      const std::uint32_t i = lists_[tier][0].front();
      append(i, std::exchange(pages_[i].referenced, false));
    }
  }

  void relocate(std::uint32_t i, std::uint32_t tier, OpId op, std::vector<Move>& out) {
    List& from = list(i);
    pages_[i].tier = tier;
    List& to = list(i);
    to.splice(to.end(), from, pages_[i].at);
    free_ = tier == 0 ? free_ - bytes(i) : free_ + bytes(i);
    out.push_back({.tensor = storages_[i].tensor,
                   .direction = tier == 0 ? Direction::promote : Direction::demote,
                   .trigger = op,
                   .deadline = op,
                   .tier = 1});
  }

  // Hot pages of the slow tier against cold ones of the fast tier, the longest listed first.
  void exchange(OpId op, std::vector<Move>& out) {
    const std::vector<std::uint32_t> hot(lists_[1][1].begin(), lists_[1][1].end());
    List& cold = lists_[0][0];
    std::uint64_t room = free_;  // and what the cold pages hold
    for (std::uint32_t i : cold) room += bytes(i);
    for (std::uint32_t i : hot) {
      if (bytes(i) > room) continue;
      room -= bytes(i);
      while (free_ < bytes(i)) relocate(cold.front(), 1, op, out);
      relocate(i, 0, op, out);
    }
  }

  std::vector<Storage> storages_;
  std::uint64_t free_, granule_;
  std::vector<std::uint32_t> of_;                        // per tensor
  std::vector<Page> pages_;                              // per storage
  std::vector<std::vector<std::uint32_t>> used_, dies_;  // per op
  std::vector<bool> scan_after_;                         // per op
  List lists_[2][2];                                     // per tier: inactive, active
};

class IalPolicy final : public OnlinePolicy {
 public:
  std::string_view name() const override { return "ial"; }
  std::unique_ptr<Controller> prepare(const Profile& profile, const Machine& machine,
                                      const PlanOptions& options) override {
    check_features(*this, options);
    require_in_place(name(), machine);
    return std::make_unique<ActiveLists>(profile, machine, options);
  }
};

}  // namespace

std::unique_ptr<Policy> make_ial() { return std::make_unique<IalPolicy>(); }

}  // namespace sentinel::plan
