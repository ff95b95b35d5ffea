// The compute of the task under way: how much it was alone on the machine, and how much is left.
// Others that compute at the same time make it last longer; it does not know by whom.
#pragma once

#include <algorithm>

namespace sentinel::sim {

class Computation {
 public:
  void start(double now_us, double alone_us) {
    begin_us_ = now_us;
    left_us_ = alone_us_ = alone_us;
  }
  void advance(double us) { left_us_ -= us; }

  double left_us() const { return left_us_; }  // of compute alone on the machine
  // Rounding: less compute than a part of the clock is none.
  bool over(double now_us) const { return left_us_ <= kRounding * std::max(1.0, now_us); }

  // Once it is over.
  double took_us(double now_us) const { return now_us - begin_us_; }
  double shared_us(double now_us) const { return std::max(0.0, took_us(now_us) - alone_us_); }

 private:
  static constexpr double kRounding = 1e-12;

  double begin_us_ = 0, alone_us_ = 0, left_us_ = 0;
};

}  // namespace sentinel::sim
