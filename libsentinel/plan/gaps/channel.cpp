// Finds the earliest or latest free time on the channel, and books it.
#include "plan/gaps/channel.h"

#include <algorithm>
#include <cmath>

namespace sentinel::plan::tensile {
namespace {

constexpr double kMostRepeats = 64;  // a job far shorter than the longest is taken to be this long
constexpr double kRounding = 1e-9;   // of the calendar's length: touching is not overlapping

}  // namespace

Channel::Channel(const std::vector<Job>& jobs) {
  for (const Job& job : jobs) length_ = std::max(length_, job.step_us);
  for (const Job& job : jobs) {
    const double ratio = job.step_us > 0 ? length_ / job.step_us : 1;
    const double times = std::clamp(std::round(ratio), 1.0, kMostRepeats);
    const double period = length_ / times;
    jobs_.push_back({job.start_us, job.step_us > 0 ? period / job.step_us : 1, period,
                     static_cast<std::uint32_t>(times)});
  }
}

double Channel::within(double at) const {
  if (length_ <= 0) return 0;
  const double rest = std::fmod(at, length_);
  return rest < 0 ? rest + length_ : rest;
}

std::optional<Channel::Taken> Channel::in_the_way(double begin, double us) const {
  const double slack = kRounding * length_;
  const double at = within(begin);
  // The part past the calendar's end lies at its beginning.
  for (const double lap : {0.0, length_}) {
    const double from = at - lap, to = at + us - lap;
    auto next = taken_.lower_bound(to - slack);
    while (next != taken_.begin()) {
      --next;
      if (next->second <= from + slack) break;
      return Taken{next->first - from, next->second - from};
    }
  }
  return std::nullopt;
}

std::optional<Channel::Taken> Channel::in_the_way(const Repeated& job, double begin,
                                                  double us) const {
  for (std::uint32_t i = 0; i < job.times; ++i)
    if (auto found = in_the_way(job.offset + begin * job.stretch + i * job.period, us)) {
      found->begin /= job.stretch;
      found->end /= job.stretch;
      return found;
    }
  return std::nullopt;
}

std::optional<double> Channel::earliest(std::uint32_t job, double from, double to,
                                        double us) const {
  const double own = us / jobs_[job].stretch;  // in the job's own time
  while (from + own <= to + kRounding * length_) {
    const auto blocked = in_the_way(jobs_[job], from, us);
    if (!blocked) return from;
    from += std::max(blocked->end, kRounding * length_);
  }
  return std::nullopt;
}

std::optional<double> Channel::latest(std::uint32_t job, double from, double to, double us) const {
  const double own = us / jobs_[job].stretch;
  double begin = to - own;
  while (begin >= from - kRounding * length_) {
    const auto blocked = in_the_way(jobs_[job], begin, us);
    if (!blocked) return std::max(begin, from);
    begin -= std::max(own - blocked->begin, kRounding * length_);
  }
  return std::nullopt;
}

// Neighbours that touch become one, so that a search skips them at once.
void Channel::take(double begin, double end) {
  if (begin >= end) return;
  const double slack = kRounding * length_;
  auto next = taken_.upper_bound(begin);
  if (next != taken_.begin() && std::prev(next)->second >= begin - slack) {
    --next;
    begin = next->first;
  }
  while (next != taken_.end() && next->first <= end + slack) {
    end = std::max(end, next->second);
    next = taken_.erase(next);
  }
  taken_[begin] = end;
}

void Channel::book(std::uint32_t job, double begin, double us) {
  const Repeated& r = jobs_[job];
  for (std::uint32_t i = 0; i < r.times; ++i) {
    const double at = within(r.offset + begin * r.stretch + i * r.period);
    take(at, std::min(at + us, length_));
    take(0, at + us - length_);
  }
}

}  // namespace sentinel::plan::tensile
