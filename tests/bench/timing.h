// Clocks and medians of the benchmarks.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace sentinel::bench {

using Clock = std::chrono::steady_clock;

inline double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median time of one call in nanoseconds, over `repeats` calls after `warmups` others.
template <class F>
double median_ns(std::size_t warmups, std::size_t repeats, F&& call) {
  std::vector<double> ns;
  for (std::size_t i = 0; i < warmups + repeats; ++i) {
    const auto begin = Clock::now();
    call();
    if (i >= warmups) ns.push_back(ns_since(begin));
  }
  return median(std::move(ns));
}

}  // namespace sentinel::bench
