// Learns the order of an op's touches, and says which come next.
#include "engine/ssd/stream_order.h"

#include <algorithm>

namespace sentinel {

void StreamOrder::begin(std::uint64_t name, std::size_t most) {
  learn();
  if (orders_.size() == kMostOrders && !orders_.contains(name)) orders_.clear();
  order_ = &orders_[name];
  op_ = use_.op();
  ranges_.clear();
  ranges_.reserve(kMostRanges);
  new_.clear();
  new_.reserve(kMostTouches);
  seen_.assign(order_->touches.size(), false);
  cursor_ = issued_ = met_ = astray_ = hints_ = 0;
  pieces_ = 0;
  ahead_begin_ = ahead_size_ = 0;
  most_ahead_ = std::min(most, kMostAhead);
  if (order_->unfit) order_ = nullptr;
}

// Of the op that ran last: its touches, and those that it had not been known to make.
void StreamOrder::learn() {
  if (order_ == nullptr) return;
  auto& order = *order_;
  if (order.touches.empty() && pieces_ > new_.size()) order.unfit = true;
  const bool wrong = !order.touches.empty() && new_.size() > met_ + kBack;
  if (wrong) {
    order.touches.clear();
    for (auto& touch : new_) touch.before = 0;
    order.unfit |= ++order.wrong == kWrong;
  } else if (met_ != 0) {
    order.wrong = 0;
  }
  if (new_.empty()) return;
  order.unfit |= order.touches.size() + new_.size() >= kMostTouches;
  if (order.unfit) {
    order.touches = {};
    order.again = {};
    order.first = {};
    return;
  }
  std::vector<Touch> merged;
  merged.reserve(order.touches.size() + new_.size());
  auto next = new_.begin();
  for (std::uint32_t i = 0; i <= order.touches.size(); ++i) {
    for (; next != new_.end() && next->before == i; ++next) merged.push_back(next->touch);
    if (i < order.touches.size()) merged.push_back(order.touches[i]);
  }
  order.touches = std::move(merged);
  index(order);
}

void StreamOrder::index(Order& order) {
  order.first.clear();
  order.again.resize(order.touches.size());
  for (auto i = static_cast<std::uint32_t>(order.touches.size()); i-- != 0;) {
    const auto [found, is_new] = order.first.try_emplace(order.touches[i].key(), i);
    order.again[i] = is_new ? kNever : found->second;
    found->second = i;
  }
}

// A tensor that is named twice is one range.
void StreamOrder::uses(BlockIndex first, BlockIndex last) noexcept {
  if (!runs() || ranges_.size() == kMostRanges) return;
  for (const auto& range : ranges_)
    if (range.first == first && range.last == last) return;
  const auto range = static_cast<std::uint32_t>(ranges_.size());
  ranges_.push_back({first, last});
  issued_ = cursor_;  // some may lie here
  ahead_size_ = 0;
  for (auto index = first; index <= last; ++index) {
    const auto found = order_->first.find(Touch{range, index - first, false}.key());
    auto& block = blocks_[index];
    const auto when = found != order_->first.end() ? found->second : kNever;
    block.due = {op_, std::min(due(block), when)};
  }
}

bool StreamOrder::touch_of(BlockIndex index, Touch& touch) const noexcept {
  for (std::uint32_t i = 0; i < ranges_.size(); ++i)
    if (index >= ranges_[i].first && index <= ranges_[i].last) {
      touch = {i, index - ranges_[i].first, blocks_[index].state == BlockState::empty};
      return true;
    }
  return false;
}

BlockIndex StreamOrder::block_of(const Touch& touch) const noexcept {
  if (touch.range >= ranges_.size()) return kNoBlock;
  const auto& range = ranges_[touch.range];
  return touch.block <= range.last - range.first ? range.first + touch.block : kNoBlock;
}

bool StreamOrder::asked(BlockIndex index) noexcept {
  Touch touch;
  if (!runs() || !touch_of(index, touch)) return false;
  const auto& known = order_->touches;
  const auto end = std::min<std::size_t>(known.size(), std::max(cursor_, issued_) + kFurther);
  for (auto i = cursor_; i < end; ++i)
    if (known[i] == touch) {
      seen_[i] = true;
      ++met_;
      astray_ -= std::min(astray_, 1u);
      reach(i + 1);
      return true;
    }
  if (find_again(touch)) return true;
  for (auto i = cursor_; i-- > cursor_ - std::min(cursor_, kBack);)
    if (known[i] == touch && !seen_[i]) {
      seen_[i] = true;
      ++met_;
      return true;
    }
  if (!was_new(touch) && new_.size() < kMostTouches) new_.push_back({touch, cursor_}), astray_ += 2;
  return false;
}

// The op may be further than the window: what it touched between had its frames.
bool StreamOrder::find_again(const Touch& touch) noexcept {
  const auto& known = order_->touches;
  const auto window = std::min<std::size_t>(known.size(), std::max(cursor_, issued_) + kFurther);
  const auto found =
      std::find(known.begin() + static_cast<std::ptrdiff_t>(window), known.end(), touch);
  if (found == known.end()) return false;
  const auto place = static_cast<std::uint32_t>(found - known.begin());
  const bool follows = hints_ != 0 && place > hint_ && place <= hint_ + kFurther;
  hints_ = follows ? hints_ + 1 : 1;
  hint_ = place;
  if (hints_ < kHints) return false;
  hints_ = 0;
  seen_[place] = true;
  ++met_;
  reach(place + 1);
  return true;
}

bool StreamOrder::was_new(const Touch& touch) const noexcept {
  constexpr std::size_t kLast = 8;  // threads ask for the same
  const auto begin = new_.end() - static_cast<std::ptrdiff_t>(std::min(new_.size(), kLast));
  return std::any_of(begin, new_.end(), [&](const New& other) { return other.touch == touch; });
}

void StreamOrder::reach(std::uint32_t cursor) noexcept {
  for (; cursor_ < cursor; ++cursor_) {
    const auto index = block_of(order_->touches[cursor_]);
    if (index != kNoBlock && due(blocks_[index]) == cursor_)
      blocks_[index].due.touch = order_->again[cursor_];
  }
  issued_ = std::max(issued_, cursor_);
  for (; ahead_size_ != 0 && ahead_[ahead_begin_] < cursor_; --ahead_size_)
    ahead_begin_ = (ahead_begin_ + 1) % kMostAhead;
}

BlockIndex StreamOrder::next() noexcept {
  if (!runs() || strays()) return kNoBlock;
  const auto& known = order_->touches;
  for (; issued_ < known.size() && ahead_size_ < most_ahead_; ++issued_) {
    const auto index = block_of(known[issued_]);
    const bool here = index != kNoBlock && blocks_[index].state != BlockState::empty;
    if (known[issued_].birth && !here) {
      ahead_[(ahead_begin_ + ahead_size_++) % kMostAhead] = issued_;
      continue;
    }
    if (index == kNoBlock) continue;
    const auto& block = blocks_[index];
    const bool idle = block.queue == QueueId::none || block.queue == QueueId::prefetch;
    if (block.state != BlockState::absent || !idle) continue;
    ahead_[(ahead_begin_ + ahead_size_++) % kMostAhead] = issued_++;
    return index;
  }
  return kNoBlock;
}

}  // namespace sentinel
