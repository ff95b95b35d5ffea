// Follows the profiled step by op names, and jumps by its n-grams where the two differ.
#include "runtime/step/matcher.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "alloc/address_table.h"
#include "capture/recorder.h"

namespace sentinel {
namespace {

std::uint64_t gram(std::span<const std::uint64_t> names) {
  std::uint64_t hash = 0;
  for (const auto name : names) hash = mix(hash, name);
  return hash;
}

}  // namespace

std::uint64_t Names::hash(const char* name) {
  const auto [it, added] = by_pointer_.try_emplace(name, 0);
  if (added) it->second = name_hash(name);
  return it->second;
}

StepMatcher::StepMatcher(const Profile& profile, OpOrder order) : order_(order) {
  std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> by_op(profile.ops.size());
  for (std::uint32_t t = 0; t < profile.tensors.size(); ++t) {
    const auto& tensor = profile.tensors[t];
    if (!tensor.alloc_op) continue;
    auto& allocations = by_op[tensor.alloc_op->index()];
    allocations.push_back({tensor.ordinal, t});
    for (const auto ordinal : tensor.again) allocations.push_back({ordinal, t});
  }
  std::uint64_t ops = 0;
  for (std::size_t i = 0; i < profile.ops.size(); ++i) {
    ops_.push_back(name_hash(profile.ops[i].name));
    prefixes_.push_back(signature_);
    ops_before_.push_back(ops);
    if (i > 0) {  // the prelude is no event
      signature_ = extended(signature_, op_event(ops_[i]), order_);
      ops = extended(ops, op_event(ops_[i]), order_);
    }
    std::sort(by_op[i].begin(), by_op[i].end());
    first_allocation_.push_back(static_cast<std::uint32_t>(allocations_.size()));
    for (const auto& [ordinal, t] : by_op[i]) {
      allocations_.push_back({profile.tensors[t].bytes, t});
      const auto event = allocation_event(ops_[i], profile.tensors[t].bytes);
      auto& alike = by_event_[event];
      ++alike.expected;
      alike.bytes = profile.tensors[t].bytes;
      expected_bytes_ += alike.bytes;
      signature_ = extended(signature_, event, order_);
    }
  }
  ops_before_.push_back(ops);
  first_allocation_.push_back(static_cast<std::uint32_t>(allocations_.size()));
  if (order_ == OpOrder::any)
    for (std::uint32_t i = 1; i < size(); ++i) by_name_[ops_[i]].positions.push_back(i);
  for (std::size_t end = kGram; end <= ops_.size(); ++end)
    grams_[gram(std::span(ops_).subspan(end - kGram, kGram))].push_back(
        static_cast<std::uint32_t>(end - 1));
}

void StepMatcher::begin_step() {
  std::fill(std::begin(recent_), std::end(recent_), 0);
  followed_ = 0;
  for (auto& [name, namesakes] : by_name_) namesakes.seen = 0;
  for (auto& [event, alike] : by_event_) alike.seen = 0;
  seen_bytes_ = alike_bytes_ = 0;
  jump(0);
}

StepMatcher::Cursor StepMatcher::jump(std::uint32_t position) {
  next_ = position + 1;
  return place(position);
}

StepMatcher::Cursor StepMatcher::place(std::uint32_t position) const {
  if (position >= size()) return {};
  return {.position = position, .allocation = first_allocation_[position]};
}

std::uint64_t StepMatcher::prefix(std::uint32_t position) const {
  return position < size() ? prefixes_[position] : 0;
}

std::uint64_t StepMatcher::ops_before(std::uint32_t position) const {
  return position <= size() ? ops_before_[position] : 0;
}

StepMatcher::Cursor StepMatcher::op(std::uint64_t name) {
  return place(order_ == OpOrder::sequence ? in_sequence(name) : in_any_order(name));
}

std::uint32_t StepMatcher::in_any_order(std::uint64_t name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return kLost;
  auto& [positions, seen] = found->second;
  return seen < positions.size() ? positions[seen++] : kLost;
}

StepMatcher::Cursor StepMatcher::take_over(const StepMatcher& from, std::uint64_t name) {
  for (auto& [each, namesakes] : by_name_) {
    const auto other = from.by_name_.find(each);
    namesakes.seen =
        other == from.by_name_.end() ? 0 : std::min(other->second.seen, namesakes.positions.size());
  }
  seen_bytes_ = from.seen_bytes_;
  alike_bytes_ = 0;
  for (auto& [event, alike] : by_event_) {
    const auto other = from.by_event_.find(event);
    alike.seen = other == from.by_event_.end() ? 0 : other->second.seen;
    alike_bytes_ += std::min(alike.seen, alike.expected) * alike.bytes;
  }
  const auto found = by_name_.find(name);
  if (found == by_name_.end() || found->second.seen == 0) return {};
  return place(found->second.positions[found->second.seen - 1]);
}

void StepMatcher::allocated(std::uint64_t event, std::uint64_t bytes) {
  seen_bytes_ += bytes;
  const auto found = by_event_.find(event);
  if (found != by_event_.end() && found->second.seen++ < found->second.expected)
    alike_bytes_ += bytes;
}

bool StepMatcher::resembles() const {
  const auto larger = std::max(expected_bytes_, seen_bytes_);
  return order_ == OpOrder::any && alike_bytes_ >= larger - larger / 20;
}

std::uint32_t StepMatcher::in_sequence(std::uint64_t name) {
  std::copy(std::begin(recent_) + 1, std::end(recent_), std::begin(recent_));
  recent_[kGram - 1] = name;
  const bool follows = next_ < size() && ops_[next_] == name;
  followed_ = follows ? followed_ + 1 : 0;
  const auto found = follows ? next_ : resume();
  if (found != kLost) next_ = found + 1;
  return found;
}

// The nearest place behind the last one where the same few ops have just run, else any.
std::uint32_t StepMatcher::resume() const {
  const auto found = grams_.find(gram(recent_));
  if (found == grams_.end()) return kLost;
  const auto at = std::ranges::lower_bound(found->second, next_);
  return at == found->second.end() ? found->second.front() : *at;
}

std::span<const StepMatcher::Expected> StepMatcher::allocations(std::uint32_t position) const {
  const auto first = first_allocation_[position];
  return std::span(allocations_).subspan(first, first_allocation_[position + 1] - first);
}

std::uint32_t StepMatcher::allocation(Cursor& place, std::uint64_t bytes) const {
  if (place.position == kLost) return LiveTensor::kUnplanned;
  const auto at = find(place, bytes);
  ++place.made;
  if (at == kLost) return LiveTensor::kUnplanned;
  place.allocation = at + 1;
  return allocations_[at].tensor;
}

// Of as many bytes; or the one whose turn it is.
std::uint32_t StepMatcher::find(const Cursor& place, std::uint64_t bytes) const {
  const auto turn = first_allocation_[place.position] + place.made;
  const auto end = first_allocation_[place.position + 1];
  const bool in_turn = order_ == OpOrder::sequence && turn >= place.allocation && turn < end;
  if (in_turn && allocations_[turn].bytes == bytes) return turn;
  for (auto at = place.allocation; at < end; ++at)
    if (allocations_[at].bytes == bytes) return at;
  return in_turn ? turn : kLost;
}

}  // namespace sentinel
