#include "plan/check/two_steps.h"

#include <algorithm>
#include <set>
#include <utility>

#include "plan/check/steady_start.h"
#include "plan/schedule/schedule.h"
#include "plan/step/footprint.h"
#include "plan/step/replay.h"

namespace sentinel::plan {
namespace {

class TwoSteps {
 public:
  TwoSteps(const Plan& plan, const Profile& profile, const std::vector<Storage>& storages,
           const Machine* machine, Violations& bad)
      : plan_(plan),
        profile_(profile),
        storages_(storages),
        machine_(machine),
        bad_(bad),
        ops_(static_cast<std::uint32_t>(profile.ops.size())),
        footprint_(profile, plan.placements, plan.granule_bytes),
        holding_(footprint_),
        of_(profile.tensors.size(), kNone),
        held_(storages.size()),
        resident_(storages.size(), false),
        lost_(storages.size(), false),
        release_(storages.size(), kNone),
        streamed_(ops_, false),
        born_away_(storages.size(), false),
        tier_(storages.size(), 1),
        begin_(ops_),
        end_(ops_),
        use_(ops_),
        promote_(ops_),
        demote_(ops_),
        releases_(ops_),
        replays_(ops_) {
    index();
  }

  // The planned peak, granules.
  std::uint64_t run() {
    std::vector<bool> absent(storages_.size(), false);
    for (TensorId t : absent_at_start(plan_, profile_)) absent[of_[t.index()]] = true;
    for (const Move& m : plan_.moves)  // in order: the last one that leaves decides
      if (const std::uint32_t i = of_[m.tensor.index()]; i != kNone && absent[i]) leaves(m, i);
    for (std::uint32_t i = 0; i < storages_.size(); ++i)
      if ((storages_[i].persistent || storages_[i].carried) && !absent[i] && !born_away_[i])
        arrive(i);
    for (int lap = 0; lap < 2; ++lap)
      for (std::uint32_t k = 0; k < ops_; ++k) step(k, lap == 1);
    return peak_;
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  void index() {
    for (std::uint32_t i = 0; i < storages_.size(); ++i) {
      const Storage& s = storages_[i];
      of_[s.tensor.index()] = i;
      if (s.carried) of_[s.carried->index()] = i;
      if (!s.persistent) begin_[s.first].push_back(i);
      if (!s.persistent) end_[s.last % ops_].push_back(i);
      for (std::uint32_t use : s.uses) use_[use % ops_].push_back(i);
    }
    for (OpId op : plan_.streamed_ops) streamed_[op.index()] = true;
    for (const Birth& b : plan_.births)
      if (const std::uint32_t i = of_[b.tensor.index()]; i != kNone) {
        born_away_[i] = true;
        tier_[i] = b.tier;
      }
    if (!plan_.streamed_ops.empty()) least_ = least_held();
    for (const Move& m : plan_.moves)
      if (m.direction != Direction::copy)
        (m.direction == Direction::promote ? promote_ : demote_)[m.trigger.index()].push_back(&m);
    for (const Recompute& r : plan_.recomputations) replays_[r.before.index()].push_back(r);
  }

  // Per op, what is held when all that it does not use and that the plan ever moves is away.
  std::vector<std::uint64_t> least_held() const {
    std::vector<bool> moves(storages_.size(), false);
    for (const Move& m : plan_.moves)
      if (m.direction != Direction::copy && of_[m.tensor.index()] != kNone)
        moves[of_[m.tensor.index()]] = true;
    for (std::uint32_t i = 0; i < storages_.size(); ++i)
      if (born_away_[i]) moves[i] = true;
    return demand(profile_, storages_, moves, footprint_).must;
  }

  void arrive(std::uint32_t i) {
    resident_[i] = true;
    lost_[i] = false;
    release_[i] = kNone;
    if (!held_[i]) holding_.hold(storages_[i].tensor);
    held_[i] = true;
  }

  void leave(std::uint32_t i) {
    if (held_[i]) holding_.drop(storages_[i].tensor);
    held_[i] = false;
    release_[i] = kNone;
  }

  void leaves(const Move& m, std::uint32_t i) {
    if (m.direction == Direction::promote || m.direction == Direction::copy) return;
    lost_[i] = m.direction == Direction::discard;
    if (!lost_[i]) tier_[i] = m.tier;
  }

  void demote(const Move& m, std::uint32_t k) {
    const std::uint32_t i = of_[m.tensor.index()];
    if (i == kNone || !resident_[i]) return;
    resident_[i] = false;
    leaves(m, i);
    if (lost_[i] || m.deadline.value == k) return leave(i);
    release_[i] = m.deadline.value;
    releases_[m.deadline.index()].push_back(i);
  }

  void step(std::uint32_t k, bool check) {
    for (std::uint32_t i : begin_[k])
      if (!born_away_[i]) arrive(i);
    for (const Move* m : promote_[k]) promote(*m, check);
    run_replays(k, check);
    for (std::uint32_t i : use_[k]) remake(i, k);
    if (check) check_op(k);
    for (std::uint32_t i : std::exchange(releases_[k], {}))
      if (release_[i] == k) leave(i);
    for (const Move* m : demote_[k]) demote(*m, k);
    for (std::uint32_t i : end_[k]) {
      resident_[i] = false;
      leave(i);
    }
  }

  void promote(const Move& m, bool check) {
    const std::uint32_t i = of_[m.tensor.index()];
    if (i == kNone) return;
    if (check && lost_[i])
      bad_.add("op {} promotes {}, whose contents were discarded", m.trigger.value,
               named(profile_, m.tensor));
    arrive(i);
  }

  // The legality of their order is illegal_replays()'s to check; here: what they read is there.
  void run_replays(std::uint32_t k, bool check) {
    std::set<TensorId> made;
    for (const Recompute& r : replays_[k]) {
      for (TensorId t : profile_.ops[r.op.index()].in) {
        const std::uint32_t i = of_[t.index()];
        if (check && i != kNone && !resident_[i] && !made.contains(t))
          bad_.add("the replay of op {} before op {} reads {}, which is not there", r.op.value, k,
                   named(profile_, t));
      }
      const auto& out = profile_.ops[r.op.index()].out;
      made.insert(out.begin(), out.end());
      for (TensorId t : r.keep)
        if (of_[t.index()] != kNone) arrive(of_[t.index()]);
    }
    replayed_bytes_ = replay_bytes(profile_, replays_[k], plan_.granule_bytes);
  }

  // What is overwritten whole is there again without being fetched.
  void remake(std::uint32_t i, std::uint32_t k) {
    const Storage& s = storages_[i];
    const auto named_in = [&](const std::vector<TensorId>& list) {
      return std::ranges::binary_search(list, s.tensor) ||
             (s.carried && std::ranges::binary_search(list, *s.carried));
    };
    const Op& op = profile_.ops[k];
    const bool on_disk = machine_ == nullptr || !machine_->tiers[tier_[i]].byte_addressable;
    const bool away = !resident_[i] && (lost_[i] || (on_disk && !in_place(i, k)));
    if (away && !named_in(op.in) && named_in(op.out)) arrive(i);
  }

  void check_op(std::uint32_t k) {
    const std::uint64_t limit =
        plan_.fast_bytes - std::min(plan_.fast_bytes, plan_.frame_pool_bytes);
    if (streamed_[k]) {
      if (least_[k] + replayed_bytes_ <= limit)
        bad_.add(
            "op {} is streamed, though {} bytes of fast memory are enough for it and {} are "
            "allowed",
            k, least_[k] + replayed_bytes_, limit);
      peak_ = std::max(peak_, limit);
      return;
    }
    const std::uint64_t held = holding_.bytes() + replayed_bytes_;
    peak_ = std::max(peak_, held);
    if (held > limit)
      bad_.add("op {} holds {} bytes of fast memory, {} are allowed", k, held, limit);
    for (std::uint32_t i : use_[k]) {
      if (resident_[i]) continue;
      const std::string tensor = named(profile_, storages_[i].tensor);
      if (!in_place(i, k))
        bad_.add("op {} uses {} while it is demoted", k, tensor);
      else if (machine_ != nullptr && !machine_->tiers[tier_[i]].byte_addressable)
        bad_.add("op {} is to use {} in {}, which is not byte-addressable", k, tensor,
                 machine_->tiers[tier_[i]].name);
    }
  }

  bool in_place(std::uint32_t i, std::uint32_t k) const {
    const Storage& s = storages_[i];
    const auto listed = [&](TensorId t) {
      return std::ranges::binary_search(plan_.in_place, InPlace{t, OpId(k)});
    };
    return !lost_[i] && (listed(s.tensor) || (s.carried && listed(*s.carried)));
  }

  const Plan& plan_;
  const Profile& profile_;
  const std::vector<Storage>& storages_;
  const Machine* machine_;
  Violations& bad_;
  std::uint32_t ops_;
  Footprint footprint_;
  Holding holding_;
  std::vector<std::uint32_t> of_;  // per tensor, its storage
  std::vector<bool> held_, resident_, lost_;
  std::vector<std::uint32_t> release_;  // op at whose end a demoted storage lets go
  std::vector<bool> streamed_, born_away_;
  std::vector<std::uint32_t> tier_;   // of the copy in slower memory
  std::vector<std::uint64_t> least_;  // per op; empty without streamed ops
  std::vector<std::vector<std::uint32_t>> begin_, end_, use_;
  std::vector<std::vector<const Move*>> promote_, demote_;
  std::vector<std::vector<std::uint32_t>> releases_;
  std::vector<std::vector<Recompute>> replays_;
  std::uint64_t replayed_bytes_ = 0;  // of the replays before the current op
  std::uint64_t peak_ = 0;
};

}  // namespace

std::uint64_t check_two_steps(const Plan& plan, const Profile& profile,
                              const std::vector<Storage>& storages, const Machine* machine,
                              Violations& bad) {
  return TwoSteps(plan, profile, storages, machine, bad).run();
}

}  // namespace sentinel::plan
