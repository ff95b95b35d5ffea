// Counts cases per interval, runs a step each way, and keeps the better choice.
#include "runtime/step/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint32_t kNone = ~0u;

}  // namespace

double now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

std::optional<Choice> parse_late(const std::string& text) {
  if (text == "wait") return Choice::wait;
  if (text == "leave") return Choice::leave;
  if (text == "try") return std::nullopt;
  throw Error(
      fmt::format("\"{}\" is no way to treat late promotions; known: wait, leave, try", text));
}

Trials::Trials(std::size_t intervals, std::optional<Choice> settled)
    : rows_(intervals), now_(intervals), phase_(settled ? Phase::settled : Phase::settling) {
  for (auto& row : rows_) row.chosen = settled.value_or(Choice::wait);
}

void Trials::begin_step(double us) {
  open_ = kNone;
  opened_us_ = us;
  for (auto& now : now_) now.any = false, now.worst = Arrival::in_time;
}

void Trials::enter(std::uint32_t interval, double us) {
  if (!trying() || interval == open_ || !now_[interval].on_trial) return;
  if (open_ != kNone)
    (phase_ == Phase::waiting ? rows_[open_].wait_us : rows_[open_].leave_us) += us - opened_us_;
  open_ = interval;
  opened_us_ = us;
}

void Trials::promotion(std::uint32_t interval, Arrival arrival) {
  auto& now = now_[interval];
  now.any = true;
  now.worst = std::max(now.worst, arrival);
}

Choice Trials::choice(std::uint32_t interval) const {
  if (now_[interval].on_trial) return phase_ == Phase::leaving ? Choice::leave : Choice::wait;
  return rows_[interval].chosen;
}

void Trials::end_step(double us, bool whole) {
  if (!whole) {  // again
    if (trying())
      for (std::size_t i = 0; i < rows_.size(); ++i)
        if (now_[i].on_trial) (phase_ == Phase::waiting ? rows_[i].wait_us : rows_[i].leave_us) = 0;
    return;
  }
  if (open_ != kNone)
    (phase_ == Phase::waiting ? rows_[open_].wait_us : rows_[open_].leave_us) += us - opened_us_;
  count_cases();
  switch (phase_) {
    case Phase::settling:
      phase_ = Phase::watching;
      return;
    case Phase::watching: {
      bool any = false;
      for (std::size_t i = 0; i < rows_.size(); ++i)
        any |= now_[i].on_trial = !rows_[i].tried && now_[i].worst == Arrival::no_time;
      if (any) phase_ = Phase::waiting;
      return;
    }
    case Phase::waiting:
      phase_ = Phase::leaving;
      return;
    case Phase::leaving:
      choose();
      phase_ = Phase::watching;
      return;
    case Phase::settled:
      return;
  }
}

void Trials::count_cases() {
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (now_[i].any) ++rows_[i].cases[static_cast<std::size_t>(now_[i].worst)];
}

void Trials::choose() {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (!now_[i].on_trial) continue;
    rows_[i].tried = true;
    rows_[i].chosen = rows_[i].leave_us < rows_[i].wait_us ? Choice::leave : Choice::wait;
    now_[i].on_trial = false;
  }
}

}  // namespace sentinel
