// Queues writes by tier in time, and tells at which op each has ended.
#include "plan/gaps/pace.h"

#include <algorithm>

#include "plan/step/rates.h"

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

// When each that goes to the tier is written, in the second of three steps: it begins with what the
// first has left in the queue, and in its end the third's is copied ahead. What leaves goes before
// what is copied ahead, each in order.
std::vector<double> Pace::ends(std::span<const Write> writes, std::uint32_t tier) const {
  struct Task {
    std::size_t write;
    std::uint32_t lap;
    double leaves_us, ahead_us;
    bool done = false;
  };
  std::vector<Task> tasks;
  for (std::uint32_t lap = 0; lap < 3; ++lap)
    for (std::size_t i = 0; i < writes.size(); ++i) {
      if (writes[i].tier != tier) continue;
      const std::uint32_t use = writes[i].use % ops_ + lap * ops_;
      const double leaves_us = end_us(use);
      tasks.push_back({i, lap, leaves_us, use < writes[i].lead ? 0 : end_us(use - writes[i].lead)});
    }
  std::ranges::stable_sort(tasks, {}, &Task::leaves_us);
  std::vector<Task*> ahead;
  for (Task& task : tasks)
    if (writes[task.write].lead > 0) ahead.push_back(&task);
  std::ranges::stable_sort(ahead, {}, &Task::ahead_us);
  std::vector<double> ends(writes.size(), 0);
  double free_us = 0;
  auto next_ahead = ahead.begin();
  for (auto next = tasks.begin(); next != tasks.end();) {
    if (next->done) {
      ++next;
      continue;
    }
    while (next_ahead != ahead.end() && (*next_ahead)->done) ++next_ahead;
    Task* task = &*next;
    double begin_us = std::max(free_us, task->leaves_us);
    if (next_ahead != ahead.end() && std::max(free_us, (*next_ahead)->ahead_us) < begin_us) {
      task = *next_ahead;
      begin_us = std::max(free_us, task->ahead_us);
    }
    free_us = begin_us + machine_.tiers[tier].latency_us +
              static_cast<double>(writes[task->write].bytes) / rate(machine_, 0, tier);
    if (task->lap == 1) ends[task->write] = std::max(free_us, task->leaves_us);
    task->done = true;
  }
  return ends;
}

std::vector<std::uint32_t> Pace::written(std::span<const Write> writes) const {
  std::vector<double> ends(writes.size(), 0);
  for (std::uint32_t tier = 1; tier < machine_.tiers.size(); ++tier) {
    const std::vector<double> of_tier = this->ends(writes, tier);
    for (std::size_t i = 0; i < writes.size(); ++i)
      if (writes[i].tier == tier) ends[i] = of_tier[i] - reached_[ops_];
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
