// Numbers at the positions 0 .. n-1 of which a range can be raised and the largest asked for, each
// in O(log n): fast memory held, op by op.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace sentinel::plan {

class RangeMax {
 public:
  RangeMax() = default;
  explicit RangeMax(std::span<const std::int64_t> values) : size_(values.size()) {
    while (leaves_ < size_) leaves_ *= 2;
    most_.assign(2 * leaves_, INT64_MIN / 2);
    raised_.assign(leaves_, 0);
    std::ranges::copy(values, most_.begin() + static_cast<std::ptrdiff_t>(leaves_));
    for (std::size_t node = leaves_; --node > 0;)
      most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
  }

  void add(std::size_t begin, std::size_t end, std::int64_t amount) {
    if (begin < end && amount != 0) add(1, 0, leaves_, begin, end, amount);
  }
  std::int64_t largest(std::size_t begin, std::size_t end) const {
    return begin < end ? largest(1, 0, leaves_, begin, end) : INT64_MIN / 2;
  }
  std::int64_t at(std::size_t position) const {
    std::int64_t value = most_[leaves_ + position];
    for (std::size_t node = (leaves_ + position) / 2; node > 0; node /= 2) value += raised_[node];
    return value;
  }
  std::size_t size() const { return size_; }

 private:
  // most_ of a node counts what was added to the node itself and below, not above.
  void add(std::size_t node, std::size_t from, std::size_t to, std::size_t begin, std::size_t end,
           std::int64_t amount) {
    if (begin <= from && to <= end) {
      most_[node] += amount;
      if (node < leaves_) raised_[node] += amount;
      return;
    }
    const std::size_t middle = (from + to) / 2;
    if (begin < middle) add(2 * node, from, middle, begin, end, amount);
    if (end > middle) add(2 * node + 1, middle, to, begin, end, amount);
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + raised_[node];
  }

  std::int64_t largest(std::size_t node, std::size_t from, std::size_t to, std::size_t begin,
                       std::size_t end) const {
    if (begin <= from && to <= end) return most_[node];
    const std::size_t middle = (from + to) / 2;
    std::int64_t most = INT64_MIN / 2;
    if (begin < middle) most = largest(2 * node, from, middle, begin, end);
    if (end > middle) most = std::max(most, largest(2 * node + 1, middle, to, begin, end));
    return most + raised_[node];
  }

  std::size_t size_ = 0, leaves_ = 1;
  std::vector<std::int64_t> most_;
  std::vector<std::int64_t> raised_;  // what was added to a whole node
};

}  // namespace sentinel::plan
