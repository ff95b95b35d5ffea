// Chooses the interval's length by the paper's equations, from layer times and bytes.
#include "plan/step/interval.h"

#include <algorithm>
#include <numeric>

namespace sentinel::plan {
namespace {

std::uint32_t layer_count(const Profile& profile) {
  return profile.ops.empty() ? 1 : profile.ops.back().layer.value + 1;
}

std::vector<double> interval_times(const Profile& profile, const Intervals& intervals) {
  std::vector<double> us(intervals.size(), 0);
  for (std::uint32_t k = 0; k < profile.ops.size(); ++k) us[intervals.of(k)] += profile.ops[k].us;
  return us;
}

// Bytes to bring in for each interval: used there, alive before, and not used in the one before.
std::vector<std::uint64_t> migrated_bytes(const IntervalInput& in, const Intervals& intervals) {
  const auto ops = static_cast<std::uint32_t>(in.profile.ops.size());
  std::vector<std::uint64_t> bytes(intervals.size(), 0);
  const auto count = static_cast<std::uint32_t>(intervals.size());
  for (std::size_t i = 0; i < in.storages.size(); ++i) {
    const Storage& s = in.storages[i];
    if (!in.movable[i] || s.uses.empty()) continue;
    // Position of an interval on the cyclic step, so that neighbours differ by one.
    const auto cyclic = [&](std::uint32_t p) { return intervals.of(p % ops) + p / ops * count; };
    std::uint32_t before = cyclic(s.uses.front());
    if (s.persistent && before + count > cyclic(s.uses.back()) + 1) bytes[before] += s.bytes;
    for (std::uint32_t use : s.uses) {
      if (cyclic(use) > before + 1) bytes[cyclic(use) % count] += s.bytes;
      before = cyclic(use);
    }
  }
  return bytes;
}

}  // namespace

Intervals::Intervals(const Profile& profile, std::uint32_t layers) : layers_(std::max(layers, 1u)) {
  for (std::uint32_t k = 0; k < profile.ops.size(); ++k) {
    const std::uint32_t cell = profile.ops[k].layer.value / layers_;
    const bool opens = k == 0 || profile.ops[k - 1].layer.value / layers_ != cell;
    if (opens) first_op_.push_back(k);  // layers without ops make no interval
    of_op_.push_back(static_cast<std::uint32_t>(first_op_.size() - 1));
  }
}

Intervals Intervals::each_op(const Profile& profile) {
  Intervals each;
  each.of_op_.resize(profile.ops.size());
  std::iota(each.of_op_.begin(), each.of_op_.end(), 0u);
  each.first_op_ = each.of_op_;
  return each;
}

IntervalPoint interval_point(const IntervalInput& in, std::uint32_t layers) {
  const Intervals intervals(in.profile, layers);
  const auto us = interval_times(in.profile, intervals);
  const auto bytes = migrated_bytes(in, intervals);
  std::vector<std::uint64_t> reserved(intervals.size(), 0);
  for (std::uint32_t k = 0; k < in.profile.ops.size(); ++k)
    reserved[intervals.of(k)] = std::max(reserved[intervals.of(k)], in.reserved[k]);
  IntervalPoint point{.layers = layers, .fits = true};
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const std::size_t before = (i + intervals.size() - 1) % intervals.size();
    const double move_us = in.rate > 0 ? static_cast<double>(bytes[i]) / in.rate : 0;
    point.exposed_us += std::max(0.0, move_us - us[before]);
    point.reserved_bytes = std::max(point.reserved_bytes, static_cast<double>(reserved[i]));
    if (bytes[i] > 0 && bytes[i] + reserved[before] >= in.fast_bytes) point.fits = false;
  }
  return point;
}

std::vector<IntervalPoint> interval_curve(const IntervalInput& in, std::uint32_t max_layers) {
  std::uint32_t longest = std::max(1u, layer_count(in.profile) / 2);
  if (max_layers > 0) longest = std::min(longest, max_layers);
  std::vector<IntervalPoint> curve;
  for (std::uint32_t m = 1; m <= longest; m += m < 64 ? 1 : m / 8)
    curve.push_back(interval_point(in, m));
  return curve;
}

std::uint32_t best_interval(const std::vector<IntervalPoint>& curve) {
  const IntervalPoint* best = nullptr;
  for (const IntervalPoint& p : curve)
    if (p.fits && (!best || p.exposed_us < best->exposed_us)) best = &p;
  return best ? best->layers : 1;
}

}  // namespace sentinel::plan
