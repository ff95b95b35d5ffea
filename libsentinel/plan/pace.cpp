#include "plan/pace.h"

#include <algorithm>

#include "plan/rates.h"

namespace sentinel::plan {

Pace::Pace(const Profile& profile, const Machine& machine, std::span<const double> op_wait_us)
    : machine_(machine), ops_(static_cast<std::uint32_t>(profile.ops.size())) {
  double now = 0;
  for (std::uint32_t k = 0; k < ops_; ++k) {
    reached_.push_back(now);
    if (k < op_wait_us.size()) now += std::max(0.0, op_wait_us[k]);
    start_.push_back(now);
    now += profile.ops[k].us;
    end_.push_back(now);
  }
  reached_.push_back(now);
}

double Pace::at(const std::vector<double>& times, std::uint32_t position) const {
  return times[position % ops_] + reached_[ops_] * static_cast<double>(position / ops_);
}

double Pace::end_us(std::uint32_t position) const { return at(end_, position); }

// Two steps, so that the second begins with what the first has left in the queues.
std::vector<std::uint32_t> Pace::written(std::span<const Write> writes) const {
  std::vector<double> free_us(machine_.tiers.size(), 0), ends(writes.size());
  for (std::uint32_t lap = 0; lap < 2; ++lap)
    for (std::size_t i = 0; i < writes.size(); ++i) {
      const Write& w = writes[i];
      double& free = free_us[w.tier];
      free = std::max(free, end_us(w.use % ops_ + lap * ops_)) + machine_.tiers[w.tier].latency_us +
             static_cast<double>(w.bytes) / rate(machine_, 0, w.tier);
      ends[i] = free - reached_[ops_];
    }
  std::vector<std::uint32_t> positions;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const std::uint32_t use = writes[i].use;
    // Of this step, counted from the step in which it leaves.
    const double end = ends[i] + reached_[ops_] * static_cast<double>(use / ops_);
    std::uint32_t low = use + 1, high = use + ops_;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (at(start_, middle) >= end)
        high = middle;
      else
        low = middle + 1;
    }
    positions.push_back(low);
  }
  return positions;
}

std::uint32_t Pace::in_time(std::uint32_t first, std::uint32_t last, std::uint32_t tier,
                            std::uint64_t bytes) const {
  const double us =
      machine_.tiers[tier].latency_us + static_cast<double>(bytes) / rate(machine_, tier, 0);
  const double latest = at(reached_, last) - 2 * us;
  std::uint32_t low = first, high = last;
  while (low < high) {
    const std::uint32_t middle = high - (high - low) / 2;
    if (at(reached_, middle) <= latest)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace sentinel::plan
