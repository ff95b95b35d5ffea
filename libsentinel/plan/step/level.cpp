// A segment tree with lazy addition over one cyclic step.
#include "plan/step/level.h"

#include <algorithm>
#include <limits>

namespace sentinel::plan {
namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

}  // namespace

Level::Level(std::span<const std::uint64_t> values)
    : ops_(static_cast<std::uint32_t>(values.size())),
      most_(4 * values.size() + 4, 0),
      added_(4 * values.size() + 4, 0) {
  for (std::uint32_t k = 0; k < ops_; ++k) add(k, k + 1, static_cast<std::int64_t>(values[k]));
}

void Level::add(std::size_t node, Positions of, Positions to, std::int64_t bytes) {
  if (to.first >= of.last || to.last <= of.first) return;
  if (to.first <= of.first && of.last <= to.last) {
    most_[node] += bytes;
    added_[node] += bytes;
    return;
  }
  const std::uint32_t middle = of.first + (of.last - of.first) / 2;
  add(2 * node, {of.first, middle}, to, bytes);
  add(2 * node + 1, {middle, of.last}, to, bytes);
  most_[node] = added_[node] + std::max(most_[2 * node], most_[2 * node + 1]);
}

std::int64_t Level::most(std::size_t node, Positions of, Positions in) const {
  if (in.first >= of.last || in.last <= of.first) return kLeast;
  if (in.first <= of.first && of.last <= in.last) return most_[node];
  const std::uint32_t middle = of.first + (of.last - of.first) / 2;
  const std::int64_t below =
      std::max(most(2 * node, {of.first, middle}, in), most(2 * node + 1, {middle, of.last}, in));
  return below == kLeast ? kLeast : below + added_[node];
}

// Right half first; a half whose maximum does not exceed is left out.
std::optional<std::uint32_t> Level::above(std::size_t node, Positions of, Positions in,
                                          std::int64_t bytes) const {
  if (in.first >= of.last || in.last <= of.first || most_[node] <= bytes) return std::nullopt;
  if (of.last - of.first == 1) return of.first;
  const std::uint32_t middle = of.first + (of.last - of.first) / 2;
  const std::int64_t rest = bytes - added_[node];
  if (const auto right = above(2 * node + 1, {middle, of.last}, in, rest)) return right;
  return above(2 * node, {of.first, middle}, in, rest);
}

void Level::add(std::uint32_t first, std::uint32_t last, std::int64_t bytes) {
  if (first >= last) return;
  if (first >= ops_) return add(first - ops_, last - ops_, bytes);
  add(1, {0, ops_}, {first, std::min(last, ops_)}, bytes);
  if (last > ops_) add(1, {0, ops_}, {0, last - ops_}, bytes);
}

std::int64_t Level::most(std::uint32_t first, std::uint32_t last) const {
  if (first >= last) return kLeast;
  if (first >= ops_) return most(first - ops_, last - ops_);
  const std::int64_t here = most(1, {0, ops_}, {first, std::min(last, ops_)});
  return last > ops_ ? std::max(here, most(1, {0, ops_}, {0, last - ops_})) : here;
}

std::optional<std::uint32_t> Level::last_above(std::uint32_t first, std::uint32_t last,
                                               std::int64_t bytes) const {
  if (first >= last) return std::nullopt;
  if (first >= ops_) {
    const auto found = last_above(first - ops_, last - ops_, bytes);
    return found ? std::optional(*found + ops_) : std::nullopt;
  }
  if (last > ops_)
    if (const auto wrapped = above(1, {0, ops_}, {0, last - ops_}, bytes)) return *wrapped + ops_;
  return above(1, {0, ops_}, {first, std::min(last, ops_)}, bytes);
}

}  // namespace sentinel::plan
