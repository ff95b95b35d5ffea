// Lists resident blocks by age, and takes the held ones out of the list.
#include "plan/seam/victims.h"

namespace sentinel::plan {

Victims::State& Victims::state(BlockId b) {
  if (b.index() >= states_.size()) states_.resize(2 * b.index() + 1);
  return states_[b.index()];
}

void Victims::list(BlockId b, State& s) {
  if (!s.present || s.listed || s.holds > 0) return;
  s.listed = true;
  heap_.emplace(s.stamp, b.value);
}

void Victims::arrive(BlockId b) {
  State& s = state(b);
  s.present = true;
  s.stamp = ++now_;
  list(b, s);
}

void Victims::leave(BlockId b) { state(b).present = false; }

void Victims::renew(BlockId b) { state(b).stamp = ++now_; }

void Victims::hold(BlockId b) { ++state(b).holds; }

void Victims::release(BlockId b) {
  State& s = state(b);
  --s.holds;
  list(b, s);
}

void Victims::use(BlockId b) {
  hold(b);
  used_.push_back(b);
}

void Victims::end_use() {
  for (BlockId b : used_) release(b);
  used_.clear();
  next_used_ = 0;
}

// Entries are corrected when they come up: what is held is listed again when it is released.
std::optional<BlockId> Victims::take() {
  while (!heap_.empty()) {
    const auto [stamp, index] = heap_.top();
    heap_.pop();
    State& s = states_[index];
    s.listed = false;
    if (s.stamp != stamp) {
      list(BlockId(index), s);
    } else if (s.present && s.holds == 0) {
      s.present = false;
      return BlockId(index);
    }
  }
  return std::nullopt;
}

std::optional<BlockId> Victims::take_used() {
  for (std::size_t tried = 0; tried < used_.size(); ++tried) {
    if (next_used_ >= used_.size()) next_used_ = 0;
    const BlockId b = used_[next_used_++];
    if (!state(b).present) continue;
    state(b).present = false;
    return b;
  }
  return std::nullopt;
}

}  // namespace sentinel::plan
