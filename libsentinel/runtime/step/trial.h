// What became of each migration interval's promotions, and what is done where they are late: the
// paper's three cases and its test-and-trial (section IV-D).
//
// A promotion that has not finished when its op begins for lack of time (Case 3) can be waited for,
// or what is left of it stays in slow memory. One step is run each way and the better stays. All
// late intervals are tried in the same two steps. What an interval's choice costs shows not only in
// its own time: what was left behind is slow to use until its next promotion. So an interval is
// judged by the time from its first op to that of the next one on trial; these spans make up the
// step.
//
// The first step under a plan is not judged: it begins with tensors elsewhere. Lack of room (Case
// 2) is counted, and waited for as long as demotions are under way. Not thread-safe; the
// session locks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace sentinel {

enum class Choice : std::uint8_t { wait, leave };
// "wait" and "leave" settle it for all intervals beforehand; "try": none. Throws Error on others.
std::optional<Choice> parse_late(const std::string& text);

struct IntervalRow {
  std::array<std::uint64_t, 3> cases{};  // steps that were Case 1, 2, 3
  bool tried = false;
  Choice chosen = Choice::wait;
  double wait_us = 0, leave_us = 0;  // its spans on trial
};

double now_us();  // the clock of what follows

class Trials {
 public:
  explicit Trials(std::size_t intervals, std::optional<Choice> settled = std::nullopt);

  void begin_step(double us);
  void enter(std::uint32_t interval, double us);  // an op of it begins
  void promotion(std::uint32_t interval, Arrival);
  Choice choice(std::uint32_t interval) const;
  // `whole`: the step was of this plan from its beginning to its end; others are not judged.
  void end_step(double us, bool whole);

  bool trying() const { return phase_ == Phase::waiting || phase_ == Phase::leaving; }
  const std::vector<IntervalRow>& rows() const { return rows_; }

 private:
  enum class Phase : std::uint8_t { settling, watching, waiting, leaving, settled };
  struct Now {  // of the running step
    Arrival worst = Arrival::in_time;
    bool any = false;       // promotions were due
    bool on_trial = false;  // in these two steps
  };

  void count_cases();
  void choose();

  std::vector<IntervalRow> rows_;
  std::vector<Now> now_;
  Phase phase_ = Phase::settling;
  std::uint32_t open_ = ~0u;  // the interval whose span is being measured
  double opened_us_ = 0;
};

}  // namespace sentinel
