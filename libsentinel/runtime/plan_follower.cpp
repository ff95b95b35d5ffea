// Matches ops to a plan, issues its moves, and turns to another plan where the step differs.
#include "runtime/plan_follower.h"

#include <algorithm>

#include "capture/recorder.h"

namespace sentinel {
namespace {

const std::uint64_t kPreludeName = name_hash(StepRecorder::kPrelude);

// Or null.
template <class Is>
Bucket* first_that(const std::vector<std::unique_ptr<Bucket>>& buckets, Is&& is) {
  const auto found = std::ranges::find_if(buckets, [&](auto& bucket) { return is(*bucket); });
  return found == buckets.end() ? nullptr : found->get();
}

}  // namespace

PlanFollower::PlanFollower(Engine& engine, Space& space, const FastLimit& limit, OpOrder order,
                           std::size_t most_borders)
    : engine_(engine),
      in_place_(engine.in_place()),
      space_(space),
      limit_(limit),
      order_(order),
      moves_(engine, space, most_borders) {}

// ---------------------------------------------------------------- kinds of step

Bucket& PlanFollower::add(Profile profile, Plan plan, std::optional<Choice> late) {
  buckets_.push_back(
      std::make_unique<Bucket>(std::move(profile), std::move(plan), order_, space_, late));
  if (buckets_.back()->replays_ops()) has_replays_ = true;
  return *buckets_.back();
}

Bucket& PlanFollower::replace(Bucket& kind, Profile profile, Plan plan,
                              std::optional<Choice> late) {
  auto other = std::make_unique<Bucket>(std::move(profile), std::move(plan), order_, space_, late);
  if (other->replays_ops()) has_replays_ = true;
  other->growth() = kind.growth();
  if (other->profile().ops.size() == kind.profile().ops.size()) other->drift() = kind.drift();
  const auto at = std::ranges::find(buckets_, &kind, &std::unique_ptr<Bucket>::get);
  const bool active = active_ == &kind;
  std::swap(*at, other);
  if (active) activate(**at);
  return **at;
}

void PlanFollower::forget_plans() {
  stop();
  buckets_.clear();
}

void PlanFollower::replays_ended() {
  has_replays_ =
      std::ranges::any_of(buckets_, [](const auto& kind) { return kind->replays_ops(); });
}

bool PlanFollower::knows(std::uint64_t signature) const {
  return std::any_of(buckets_.begin(), buckets_.end(), [&](const auto& bucket) {
    return bucket->matcher().signature() == signature;
  });
}

bool PlanFollower::as_profiled(std::uint64_t signature) const {
  return knows(signature) ||
         (active_ != nullptr && !now_.diverged && active_->matcher().resembles());
}

std::vector<std::vector<IntervalRow>> PlanFollower::intervals() const {
  std::vector<std::vector<IntervalRow>> rows;
  for (const auto& bucket : buckets_) rows.push_back(bucket->trials().rows());
  return rows;
}

void PlanFollower::activate(Bucket& bucket) {
  moves_.forget();
  active_ = &bucket;
  space_.activate(bucket.space_plan());
  bucket.bind(space_);
  engine_.reuse_dead_blocks();  // what warmed up lay elsewhere
  bring(bucket);
  if (!bucket.moves_anything()) return;
  for (const auto id : bucket.away_at_start())
    if (auto* tensor = bucket.live(id, space_);
        tensor != nullptr && tensor->wanted && !tensor->held) {
      tensor->wanted = false;
      engine_.demote(tensor->address, tensor->bytes);
    }
}

// What was born in slow memory, before there was a plan or for lack of room, and belongs in fast.
void PlanFollower::bring(Bucket& bucket) {
  for (const auto id : bucket.here_at_start())
    if (auto* tensor = bucket.live(id, space_); tensor != nullptr && !tensor->wanted) {
      tensor->wanted = true;
      engine_.promote(tensor->address, tensor->bytes);
    }
}

// In mid-step: it turns out to be of that kind.
void PlanFollower::change_to(Bucket& bucket) {
  now_.changed = true;
  moves_.forget();
  moves_.borders().let_go_soon();
  active_ = &bucket;
  space_.activate(bucket.space_plan());
  bucket.bind(space_);
  bring(bucket);
  bucket.begin_step(limit_.peaks());
  limit_.wants(bucket.beyond_base(OpId(0)));
  bucket.trials().begin_step(now_us());
}

// ---------------------------------------------------------------- the step

void PlanFollower::begin_step() {
  moves_.borders().let_all_go();
  if (now_.diverged || now_.resized) reuse_frames();
  now_ = {};
  sizes_.begin_step();
  accesses_ = {};
  prelude_ = {};
  if (active_ == nullptr) return;
  active_->begin_step(limit_.peaks());
  limit_.wants(active_->beyond_base(OpId(0)));
  prelude_ = active_->matcher().prelude();
  active_->trials().begin_step(now_us());
}

// What is put off beyond the step's end is not late then: its tensors play other roles from there.
void PlanFollower::take_over() {
  moves_.step_ends();
  if (active_ != nullptr) active_->take_over(space_);
}

void PlanFollower::end_on_trial() {
  const auto& matcher = active_->matcher();
  const bool whole =
      !now_.diverged && (now_.signature == matcher.signature() || matcher.resembles());
  active_->trials().end_step(now_us(), whole);
}

std::optional<StepSizes::Difference> PlanFollower::difference() const {
  if (active_ == nullptr || now_.diverged || order_ == OpOrder::any) return {};
  const auto& matcher = active_->matcher();
  const bool whole =
      now_.ops + 1 == matcher.size() && now_.ops_signature == matcher.ops_before(matcher.size());
  if (!whole || now_.signature == matcher.signature()) return {};
  return sizes_.against(matcher, active_->profile());
}

// Without a budget dead blocks keep their frames. Where tensors will lie elsewhere than before they
// would be held twice.
void PlanFollower::reuse_frames() {
  if (limit_.bytes() == 0) engine_.reuse_dead_blocks();
}

// ---------------------------------------------------------------- its ops

void PlanFollower::before_first_op(Op& op) const {
  op.bucket = active_;
  op.place = prelude_;
  op.name = kPreludeName;
}

bool PlanFollower::op_start(Op& op, std::uint64_t name) {
  const auto prefix = now_.signature;
  const bool misplaced = std::exchange(now_.misplaced, false);
  op.name = name;
  now_.signature = extended(now_.signature, op_event(name), order_);
  now_.ops_signature = extended(now_.ops_signature, op_event(name), order_);
  ++now_.ops;
  op.awaited.clear();
  op.died.clear();
  op.discards.clear();
  op.bucket = active_;
  if (active_ == nullptr) return true;
  op.place = active_->matcher().op(name);
  const bool follows = follow(op, prefix);
  prepare(op);
  return follows && !misplaced;
}

// What happened before decides whether the step still is of the active bucket's kind at all, or of
// another known one. In any order nothing is before: a step differs as soon as one of its ops does.
bool PlanFollower::follow(Op& op, std::uint64_t prefix) {
  if (now_.diverged) return true;
  const auto position = op.place.position;
  if (position != StepMatcher::kLost &&
      (order_ == OpOrder::any || active_->matcher().prefix(position) == prefix))
    return true;
  if (order_ == OpOrder::sequence) {
    const auto as_so_far = [&](Bucket& bucket) {
      return &bucket != active_ && bucket.matcher().prefix(now_.ops) == prefix;
    };
    if (auto* other = first_that(buckets_, as_so_far)) {
      turn_to(op, *other);
      now_.resized = false;
      return true;
    }
    const auto of_these_ops = [&](Bucket& bucket) {
      const auto& matcher = bucket.matcher();
      return now_.ops < matcher.size() && matcher.ops_before(now_.ops + 1) == now_.ops_signature;
    };
    const bool same = of_these_ops(*active_);
    if (auto* other = same ? active_ : first_that(buckets_, of_these_ops)) {
      if (!same) turn_to(op, *other);
      if (!std::exchange(now_.resized, true)) reuse_frames();
      return true;
    }
  }
  now_.diverged = true;
  limit_.wants(0);
  reuse_frames();
  return false;
}

// At the beginning of an op: the step is of that kind.
void PlanFollower::turn_to(Op& op, Bucket& other) {
  change_to(other);
  op.bucket = &other;
  op.place = other.matcher().jump(now_.ops);
}

// Starts the moves that are due at the op, and notes what it has to wait for.
void PlanFollower::prepare(Op& running) {
  if (running.place.position == StepMatcher::kLost) return;
  const OpId op(running.place.position);
  if (active_->has_peaks() && !now_.diverged) limit_.wants(active_->beyond_base(op));
  if (!active_->moves_anything()) return;
  moves_.issue_due();
  due_.clear();
  active_->op_start(op, due_);
  moves_.issue(*active_, due_, op);
  moves_.borders().let_go(op.value);
  if (active_->streams(op))
    engine_.begin_oversized_op(active_->matcher().signature() + op.value,
                               active_->side_by_side(op));
  for (const auto id : active_->used(op)) {
    moves_.used(id);
    if (const auto* tensor = active_->live(id, space_))
      engine_.touch(tensor->address, tensor->bytes);
  }
  running.interval = active_->interval(op);
  active_->trials().enter(running.interval, now_us());
  for (const auto id : active_->awaited(op))
    if (const auto* tensor = active_->live(id, space_)) running.awaited.push_back(*tensor);
}

void PlanFollower::op_end(Op& op) {
  const auto position = op.place.position;
  if (active_ == nullptr || op.bucket != active_ || position == StepMatcher::kLost) return;
  if (in_place_ != nullptr && !now_.diverged) count_accesses(op);
  if (!active_->moves_anything()) return;
  moves_.issue_due();
  due_.clear();
  active_->op_end(OpId(position), due_);
  moves_.issue(*active_, due_, OpId(position), op.discarding ? &op.discards : nullptr);
}

void PlanFollower::demote_instead(const IssuedMoves::GivenUp& due) {
  if (active_ == nullptr || due.bucket != active_) return;
  due_.assign(1, {.tensor = due.id, .direction = Direction::demote});
  moves_.issue(*active_, due_, due.op);
}

// Where slow memory is used in place, what is late may stay.
void PlanFollower::await(const Op& op, std::mutex& lock) {
  for (const auto& tensor : op.awaited) {
    if (in_place_ != nullptr) {
      const std::lock_guard guard(lock);
      if (leaves(op, tensor)) continue;
    }
    engine_.await(tensor.address, tensor.bytes);
  }
}

// Whether what is late stays where it is.
bool PlanFollower::leaves(const Op& op, const LiveTensor& tensor) {
  if (op.bucket != active_) return false;
  auto& trials = active_->trials();
  trials.promotion(op.interval, in_place_->arrival(tensor.address, tensor.bytes));
  if (trials.choice(op.interval) != Choice::leave) return false;
  in_place_->leave(tensor.address, tensor.bytes);
  return true;
}

// ---------------------------------------------------------------- its tensors

// Whether births are those of the profiled step: until the step differs, and again as soon as it
// has been as profiled for a while. In any order each op is known by itself.
bool PlanFollower::on_track() const {
  constexpr std::uint32_t kOps = 16;
  return !now_.diverged || order_ == OpOrder::any || active_->matcher().followed() >= kOps;
}

// In any order it is the allocations that tell one known kind of step from another: a smaller batch
// has the same ops.
std::uint32_t PlanFollower::slot(Op& op, bool in_op, std::uint64_t bytes) {
  if (active_ == nullptr || !on_track()) return LiveTensor::kUnplanned;
  if (order_ == OpOrder::any && in_op && !now_.changed) {
    const auto& before = active_->matcher();
    const auto allocates = [event = allocation_event(op.name, bytes)](Bucket& bucket) {
      return bucket.matcher().allocates(event);
    };
    if (auto* other = allocates(*active_) ? nullptr : first_that(buckets_, allocates)) {
      change_to(*other);
      op.bucket = other;
      op.place = other->matcher().take_over(before, op.name);
      prelude_ = {};
    }
  }
  // Where nothing moves best fit is better: it reuses what is still in the processor's cache.
  if (!active_->moves_anything()) return LiveTensor::kUnplanned;
  const bool outside = order_ == OpOrder::any && !in_op;
  const auto slot = active_->matcher().allocation(outside ? prelude_ : op.place, bytes);
  now_.misplaced |= now_.resized && slot == LiveTensor::kUnplanned && bytes >= engine_.granule();
  return slot;
}

void PlanFollower::allocated(std::uint64_t event, std::uint64_t bytes) {
  now_.signature = extended(now_.signature, event, order_);
  if (order_ == OpOrder::sequence) sizes_.allocated(now_.ops, bytes);
  if (active_ != nullptr && order_ == OpOrder::any) active_->matcher().allocated(event, bytes);
}

void PlanFollower::died(Op& op, const LiveTensor& tensor) {
  if (in_place_ != nullptr && tensor.slot != LiveTensor::kUnplanned)
    op.died.push_back({tensor.slot, fast_share(tensor)});
}

// Which share of the op's accesses, as the profile counted them, were to fast memory.
void PlanFollower::count_accesses(const Op& op) {
  const auto& dead = op.died;
  for (const auto& [id, count] : active_->accesses(OpId(op.place.position))) {
    const auto died = std::find_if(dead.begin(), dead.end(),
                                   [id = id](const auto& d) { return d.first == id.value; });
    const auto* tensor = died == dead.end() ? active_->live(id, space_) : nullptr;
    if (tensor == nullptr && died == dead.end()) continue;
    accesses_.all += count;
    accesses_.fast += count * (tensor != nullptr ? fast_share(*tensor) : died->second);
  }
}

double PlanFollower::fast_share(const LiveTensor& tensor) const {
  return static_cast<double>(in_place_->fast_bytes(tensor.address, tensor.bytes)) /
         static_cast<double>(tensor.bytes);
}

}  // namespace sentinel
