// Runs a plan over two steps as the engine would, and reports what the second one breaks.
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

constexpr std::uint32_t kNone = UINT32_MAX;

// The events at each op of the step, as the plan and the profile have them. They do not change.
struct StepEvents {
  StepEvents(const Plan& plan, const Profile& profile, const std::vector<Storage>& storages)
      : of(profile.tensors.size(), kNone),
        streamed(profile.ops.size(), false),
        born_away(storages.size(), false),
        begin(profile.ops.size()),
        end(profile.ops.size()),
        use(profile.ops.size()),
        promote(profile.ops.size()),
        demote(profile.ops.size()),
        replays(profile.ops.size()) {
    for (std::uint32_t i = 0; i < storages.size(); ++i) add(storages[i], i);
    for (OpId op : plan.streamed_ops) streamed[op.index()] = true;
    for (const Birth& b : plan.births)
      if (const std::uint32_t i = storage_of(b.tensor); i != kNone) born_away[i] = true;
    for (const Move& m : plan.moves)
      if (m.direction != Direction::copy)
        (m.direction == Direction::promote ? promote : demote)[m.trigger.index()].push_back(&m);
    for (const Recompute& r : plan.recomputations) replays[r.before.index()].push_back(r);
  }

  void add(const Storage& s, std::uint32_t i) {
    of[s.tensor.index()] = i;
    if (s.carried) of[s.carried->index()] = i;
    if (!s.persistent) begin[s.first].push_back(i);
    if (!s.persistent) end[s.last % end.size()].push_back(i);
    for (std::uint32_t at : s.uses) use[at % use.size()].push_back(i);
  }
  std::uint32_t storage_of(TensorId tensor) const { return of[tensor.index()]; }

  std::vector<std::uint32_t> of;          // per tensor, its storage
  std::vector<bool> streamed, born_away;  // per op; per storage
  std::vector<std::vector<std::uint32_t>> begin, end, use;
  std::vector<std::vector<const Move*>> promote, demote;
  std::vector<std::vector<Recompute>> replays;
};

// Where each storage is at a moment of the step, and the fast memory that all of them hold.
//
// Invariant: a resident storage holds its memory; a demoted one does until its move's deadline; a
// discarded one goes on to hold the units that do not lie wholly within it.
class StorageStates {
 public:
  StorageStates(const Footprint& footprint, const std::vector<Storage>& storages, std::uint32_t ops)
      : storages_(storages),
        footprint_(footprint),
        holding_(footprint),
        held_(storages.size()),
        ends_(storages.size(), false),
        resident_(storages.size(), false),
        lost_(storages.size(), false),
        release_(storages.size(), kNone),
        tier_(storages.size(), 1),
        releases_(ops) {}

  bool resident(std::uint32_t i) const { return resident_[i]; }
  bool lost(std::uint32_t i) const { return lost_[i]; }  // its contents were discarded
  std::uint32_t tier(std::uint32_t i) const { return tier_[i]; }
  std::uint64_t held_bytes() const { return holding_.bytes(); }

  void born_in(std::uint32_t i, std::uint32_t tier) { tier_[i] = tier; }

  void arrive(std::uint32_t i) {
    resident_[i] = true;
    lost_[i] = false;
    release_[i] = kNone;
    if (ends_[i])
      for (UnitId u : footprint_.whole(storages_[i].tensor)) holding_.hold(u);
    else if (!held_[i])
      holding_.hold(storages_[i].tensor);
    held_[i] = true;
    ends_[i] = false;
  }

  // Notes where the move leaves the contents. The memory is another matter.
  void leaves(const Move& m, std::uint32_t i) {
    if (m.direction == Direction::promote || m.direction == Direction::copy) return;
    lost_[i] = m.direction == Direction::discard;
    if (!lost_[i]) tier_[i] = m.tier;
  }

  void demote(const Move& m, std::uint32_t i, std::uint32_t k) {
    if (!resident_[i]) return;
    resident_[i] = false;
    leaves(m, i);
    if (lost_[i]) return lose(i);
    if (m.deadline.value == k) return leave(i);
    release_[i] = m.deadline.value;
    releases_[m.deadline.index()].push_back(i);
  }

  void release_at(std::uint32_t k) {
    for (std::uint32_t i : std::exchange(releases_[k], {}))
      if (release_[i] == k) leave(i);
  }

  void end(std::uint32_t i) {
    resident_[i] = false;
    leave(i);
  }

 private:
  void lose(std::uint32_t i) {
    release_[i] = kNone;
    if (!held_[i] || ends_[i]) return;
    for (UnitId u : footprint_.whole(storages_[i].tensor)) holding_.drop(u);
    ends_[i] = true;
  }

  void leave(std::uint32_t i) {
    if (ends_[i])
      for (UnitId u : footprint_.whole(storages_[i].tensor)) holding_.hold(u);
    if (held_[i]) holding_.drop(storages_[i].tensor);
    held_[i] = ends_[i] = false;
    release_[i] = kNone;
  }

  const std::vector<Storage>& storages_;
  const Footprint& footprint_;
  Holding holding_;
  std::vector<bool> held_;  // all of it; of what is in ends_, the units at its ends
  std::vector<bool> ends_;  // discarded, not made again yet
  std::vector<bool> resident_, lost_;
  std::vector<std::uint32_t> release_;  // op at whose end a demoted storage lets go
  std::vector<std::uint32_t> tier_;     // of the copy in slower memory
  std::vector<std::vector<std::uint32_t>> releases_;
};

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
        at_(plan, profile, storages),
        footprint_(profile, plan.placements, plan.granule_bytes),
        states_(footprint_, storages, ops_) {
    for (const Birth& b : plan.births)
      if (const std::uint32_t i = at_.storage_of(b.tensor); i != kNone) states_.born_in(i, b.tier);
    if (!plan.streamed_ops.empty()) least_ = least_held();
  }

  // The planned peak, granules.
  std::uint64_t run() {
    std::vector<bool> absent(storages_.size(), false);
    for (TensorId t : absent_at_start(plan_, profile_)) absent[at_.storage_of(t)] = true;
    for (const Move& m : plan_.moves)  // in order: the last one that leaves decides
      if (const std::uint32_t i = at_.storage_of(m.tensor); i != kNone && absent[i])
        states_.leaves(m, i);
    for (std::uint32_t i = 0; i < storages_.size(); ++i)
      if ((storages_[i].persistent || storages_[i].carried) && !absent[i] && !at_.born_away[i])
        states_.arrive(i);
    for (int lap = 0; lap < 2; ++lap)
      for (std::uint32_t k = 0; k < ops_; ++k) step(k, lap == 1);
    return peak_;
  }

 private:
  // Per op, what is held when all that it does not use and that the plan ever moves is away.
  std::vector<std::uint64_t> least_held() const {
    std::vector<bool> moves = at_.born_away;
    for (const Move& m : plan_.moves)
      if (m.direction != Direction::copy && at_.storage_of(m.tensor) != kNone)
        moves[at_.storage_of(m.tensor)] = true;
    return demand(profile_, storages_, moves, footprint_).must;
  }

  void step(std::uint32_t k, bool check) {
    for (const Move* m : at_.promote[k]) promote(*m, check);
    run_replays(k, check);
    for (std::uint32_t i : at_.begin[k])
      if (!at_.born_away[i]) states_.arrive(i);
    for (std::uint32_t i : at_.use[k]) remake(i, k);
    if (check) check_op(k);
    states_.release_at(k);
    for (const Move* m : at_.demote[k])
      if (const std::uint32_t i = at_.storage_of(m->tensor); i != kNone) states_.demote(*m, i, k);
    for (std::uint32_t i : at_.end[k]) states_.end(i);
  }

  void promote(const Move& m, bool check) {
    const std::uint32_t i = at_.storage_of(m.tensor);
    if (i == kNone) return;
    if (check && states_.lost(i))
      bad_.add("op {} promotes {}, whose contents were discarded", m.trigger.value,
               named(profile_, m.tensor));
    states_.arrive(i);
  }

  // The legality of their order is illegal_replays()'s to check; here: what they read is there.
  void run_replays(std::uint32_t k, bool check) {
    std::set<TensorId> made;
    for (const Recompute& r : at_.replays[k]) {
      for (TensorId t : profile_.ops[r.op.index()].in) {
        const std::uint32_t i = at_.storage_of(t);
        if (check && i != kNone && !states_.resident(i) && !made.contains(t))
          bad_.add("the replay of op {} before op {} reads {}, which is not there", r.op.value, k,
                   named(profile_, t));
      }
      const auto& out = profile_.ops[r.op.index()].out;
      made.insert(out.begin(), out.end());
      for (TensorId t : r.keep)
        if (at_.storage_of(t) != kNone) states_.arrive(at_.storage_of(t));
    }
    replayed_bytes_ = replay_bytes(profile_, at_.replays[k], plan_.granule_bytes);
    if (replayed_bytes_ == 0 || !shares_granules(plan_.granule_bytes)) return;
    // On frames they are over when the op begins, which has yet to make its own tensors.
    if (check && !at_.streamed[k]) require_room(k, states_.held_bytes() + replayed_bytes_);
    replayed_bytes_ = 0;
  }

  std::uint64_t limit() const {
    return plan_.fast_bytes - std::min(plan_.fast_bytes, plan_.frame_pool_bytes);
  }

  void require_room(std::uint32_t k, std::uint64_t held) {
    peak_ = std::max(peak_, held);
    if (held > limit())
      bad_.add("op {} holds {} bytes of fast memory, {} are allowed", k, held, limit());
  }

  // What is overwritten whole is there again without being fetched.
  void remake(std::uint32_t i, std::uint32_t k) {
    const Storage& s = storages_[i];
    const auto named_in = [&](const std::vector<TensorId>& list) {
      return std::ranges::binary_search(list, s.tensor) ||
             (s.carried && std::ranges::binary_search(list, *s.carried));
    };
    const Op& op = profile_.ops[k];
    const bool on_disk = machine_ == nullptr || !machine_->tiers[states_.tier(i)].byte_addressable;
    const bool away = !states_.resident(i) && (states_.lost(i) || (on_disk && !in_place(i, k)));
    if (away && !named_in(op.in) && named_in(op.out)) states_.arrive(i);
  }

  void check_op(std::uint32_t k) {
    if (at_.streamed[k]) {
      if (least_[k] + replayed_bytes_ <= limit())
        bad_.add(
            "op {} is streamed, though {} bytes of fast memory are enough for it and {} are "
            "allowed",
            k, least_[k] + replayed_bytes_, limit());
      peak_ = std::max(peak_, limit());
      return;
    }
    require_room(k, states_.held_bytes() + replayed_bytes_);
    for (std::uint32_t i : at_.use[k]) {
      if (states_.resident(i)) continue;
      const std::string tensor = named(profile_, storages_[i].tensor);
      if (!in_place(i, k))
        bad_.add("op {} uses {} while it is demoted", k, tensor);
      else if (machine_ != nullptr && !machine_->tiers[states_.tier(i)].byte_addressable)
        bad_.add("op {} is to use {} in {}, which is not byte-addressable", k, tensor,
                 machine_->tiers[states_.tier(i)].name);
    }
  }

  bool in_place(std::uint32_t i, std::uint32_t k) const {
    const Storage& s = storages_[i];
    const auto listed = [&](TensorId t) {
      return std::ranges::binary_search(plan_.in_place, InPlace{t, OpId(k)});
    };
    return !states_.lost(i) && (listed(s.tensor) || (s.carried && listed(*s.carried)));
  }

  const Plan& plan_;
  const Profile& profile_;
  const std::vector<Storage>& storages_;
  const Machine* machine_;
  Violations& bad_;
  std::uint32_t ops_;
  StepEvents at_;
  Footprint footprint_;
  StorageStates states_;
  std::vector<std::uint64_t> least_;  // per op; empty without streamed ops
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
