// When the way between fast memory and the host is taken, by all jobs together: a cyclic calendar.
// One transfer at a time, whichever its direction (TENSILE, section 4.1: pinned memory's limit).
//
// The calendar is as long as the longest job's step. A job with shorter steps comes round several
// times in it; its steps are stretched a little so that they do a whole number of times, and what
// it books is booked in each of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace sentinel::plan::tensile {

class Channel {
 public:
  struct Job {
    double start_us = 0, step_us = 0;  // when its first step begins; how long each takes
  };
  explicit Channel(const std::vector<Job>&);

  // Where in the job's step (us since its begin, may be past its end) a transfer of `us` can begin
  // and still lie in [from, to]: as early as possible, or as late.
  std::optional<double> earliest(std::uint32_t job, double from, double to, double us) const;
  std::optional<double> latest(std::uint32_t job, double from, double to, double us) const;

  void book(std::uint32_t job, double begin, double us);

 private:
  struct Taken {
    double begin, end;
  };
  struct Repeated {
    double offset, stretch, period;
    std::uint32_t times;
  };
  // What is in the way of a transfer at this place of the calendar, relative to that place.
  std::optional<Taken> in_the_way(double begin, double us) const;
  std::optional<Taken> in_the_way(const Repeated&, double begin, double us) const;
  double within(double at) const;
  void take(double begin, double end);

  double length_ = 0;
  std::vector<Repeated> jobs_;
  std::map<double, double> taken_;  // begin -> end, apart, within [0, length)
};

}  // namespace sentinel::plan::tensile
