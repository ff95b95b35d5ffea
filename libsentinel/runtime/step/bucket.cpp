// Binds a profile and its plan: slots, moves by op, accesses, layers of intervals.
#include "runtime/step/bucket.h"

#include <algorithm>
#include <unordered_map>

#include "plan/check/verify.h"

namespace sentinel {
namespace {

bool ends_in_its_op(const Tensor& tensor) {
  return tensor.alloc_op && tensor.alloc_op == tensor.free_op;
}

std::vector<PlannedSlot> slots_of(const Profile& profile, const Plan& plan) {
  std::vector<PlannedSlot> slots(profile.tensors.size());
  for (const auto& placement : plan.placements) {
    const auto pool = plan.groups[placement.group.index()].pool;
    const auto& tensor = profile.tensors[placement.tensor.index()];
    slots[placement.tensor.index()] = {.offset = placement.offset,
                                       .bytes = tensor.bytes,
                                       .placed = true,
                                       .shared = pool != Pool::long_lived,
                                       .reserved = pool == Pool::short_lived,
                                       .brief = ends_in_its_op(tensor)};
  }
  return slots;
}

std::vector<std::vector<Bucket::Accesses>> accesses_of(const Profile& profile) {
  std::vector<std::vector<Bucket::Accesses>> accesses(profile.ops.size());
  for (const auto& a : profile.accesses)
    accesses[a.op.index()].push_back({a.tensor, static_cast<double>(a.reads + a.writes)});
  if (!profile.accesses.empty()) return accesses;
  const auto pages = [&](TensorId id) {
    return static_cast<double>(profile.tensors[id.index()].bytes) / 4096;
  };
  for (std::size_t op = 0; op < profile.ops.size(); ++op)
    for (const auto* list : {&profile.ops[op].in, &profile.ops[op].out})
      for (const auto id : *list) accesses[op].push_back({id, pages(id)});
  return accesses;
}

// With memory of its own, which it uses, an op does one thing after another.
std::vector<bool> in_phases(const Profile& profile, std::uint64_t granule_bytes) {
  std::vector<bool> used(profile.tensors.size(), profile.accesses.empty());
  for (const auto& access : profile.accesses) used[access.tensor.index()] = true;
  std::vector<bool> ops(profile.ops.size());
  for (std::size_t t = 0; t < profile.tensors.size(); ++t) {
    const auto& tensor = profile.tensors[t];
    if (used[t] && tensor.bytes >= granule_bytes && ends_in_its_op(tensor))
      ops[tensor.alloc_op->index()] = true;
  }
  return ops;
}

}  // namespace

Bucket::Bucket(Profile profile, Plan plan, OpOrder order, Space& space, std::optional<Choice> late)
    : profile_(std::move(profile)),
      plan_(std::move(plan)),
      matcher_(profile_, order),
      space_plan_(space.add_plan(slots_of(profile_, plan_), plan_.region_bytes, moves_anything())),
      controller_(walk(plan_)),
      persistent_(profile_.tensors.size()),
      awaited_(profile_.ops.size()),
      used_(profile_.ops.size()),
      streams_(profile_.ops.size()),
      accesses_(accesses_of(profile_)),
      borders_(profile_, plan_),
      intervals_(profile_, plan_.interval_layers),
      trials_(intervals_.size(), late),
      anew_{.growth = {}, .drift = Drift(profile_)} {
  for (const auto& move : plan_.moves)
    if (move.direction == Direction::promote)
      awaited_[move.deadline.index()].push_back(move.tensor);
  const auto phases = in_phases(profile_, plan_.granule_bytes);
  for (const auto op : plan_.streamed_ops)
    streams_[op.index()] = phases[op.index()] ? Streaming::in_phases : Streaming::side_by_side;
  if (!plan_.recomputations.empty()) replayed_.resize(profile_.ops.size());
  for (const auto& replay : plan_.recomputations) replayed_[replay.op.index()] = true;
  left_ = plan::left_behind(profile_);
  away_ = plan::absent_at_start(plan_, profile_);
  std::vector<bool> away(profile_.tensors.size());
  for (const auto& birth : plan_.births)  // a persistent tensor's is where it stays
    if (!profile_.tensors[birth.tensor.index()].alloc_op) away_.push_back(birth.tensor);
  for (const auto id : away_) away[id.index()] = true;
  for (std::size_t t = 0; t < profile_.tensors.size(); ++t) {
    const auto& tensor = profile_.tensors[t];
    if (!tensor.alloc_op && !tensor.foreign && !away[t]) here_.push_back(TensorId(t));
  }
  if (plan_.moves.empty()) return;
  for (std::size_t op = 0; op < profile_.ops.size(); ++op) {
    used_[op] = profile_.ops[op].in;
    used_[op].insert(used_[op].end(), profile_.ops[op].out.begin(), profile_.ops[op].out.end());
  }
}

void Bucket::bind(Space& space) {
  std::vector<LiveTensor> alive;
  space.table().for_each([&](const LiveTensor& tensor) { alive.push_back(tensor); });
  std::sort(alive.begin(), alive.end(),
            [](const auto& a, const auto& b) { return a.birth < b.birth; });
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> of_size;  // ascending
  for (std::size_t i = 0; i < alive.size(); ++i) of_size[alive[i].bytes].push_back(i);
  std::size_t next = 0;
  for (std::size_t t = 0; t < persistent_.size(); ++t) {
    const auto& tensor = profile_.tensors[t];
    persistent_[t] = 0;
    if (tensor.alloc_op || tensor.foreign) continue;
    const auto& alike = of_size[tensor.bytes];
    const auto at = std::ranges::lower_bound(alike, next);
    if (at == alike.end()) continue;
    persistent_[t] = alive[*at].address;
    next = *at + 1;
  }
}

void Bucket::begin_step(const plan::PeakOptions& within) {
  find_peaks(within);
  matcher_.begin_step();
  controller_ = walk(plan_);
}

std::vector<TensorId> Bucket::remade_before(OpId op) const {
  std::vector<TensorId> kept;
  for (const auto& replay :
       std::ranges::equal_range(plan_.recomputations, op, {}, &Recompute::before))
    kept.insert(kept.end(), replay.keep.begin(), replay.keep.end());
  return kept;
}

void Bucket::find_peaks(plan::PeakOptions within) {
  within.most = std::min(within.most, plan_.fast_bytes);
  if (within == peaks_.within) return;
  peaks_ = {within, plan::peaks(profile_, within)};
}

void Bucket::take_over(Space& space) const {
  for (const auto& left : left_)
    if (left.beside) space.hand_over(space_plan_, left.now.value, left.before.value);
}

LiveTensor* Bucket::live(TensorId id, Space& space) const {
  const auto t = id.index();
  const bool placed = space.placed(space_plan_, id.value);
  const auto address = placed ? space.address_of(space_plan_, id.value) : persistent_[t];
  auto* tensor = address == 0 ? nullptr : space.find(reinterpret_cast<const void*>(address));
  if (tensor == nullptr) return nullptr;
  const bool in_its_slot = placed && tensor->plan == space_plan_ && tensor->slot == id.value;
  return in_its_slot || tensor->bytes == profile_.tensors[t].bytes ? tensor : nullptr;
}

}  // namespace sentinel
