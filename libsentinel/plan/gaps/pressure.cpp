// Keeps excess bytes and their times over a step, as tensors are released and held.
#include "plan/gaps/pressure.h"

#include <algorithm>

namespace sentinel::plan {
namespace {

constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 60;
constexpr double kRoundingUs = 1e-3;                  // of sums of times
constexpr std::int64_t kFar = std::int64_t{1} << 61;  // more than any sum of tensors

}  // namespace

StepTimes::StepTimes(const Profile& profile) : starts_{0} {
  for (const Op& op : profile.ops) starts_.push_back(starts_.back() + op.us);
}

double StepTimes::start_us(std::uint32_t position) const {
  return position / ops() * starts_.back() + starts_[position % ops()];
}

std::uint32_t StepTimes::first_from(double us) const {
  const double step = starts_.back();
  const auto lap = step > 0 && us > 0 ? static_cast<std::uint32_t>(us / step) : 0;
  const auto at = std::ranges::lower_bound(starts_, us - lap * step - kRoundingUs);
  return lap * ops() + std::min(ops(), static_cast<std::uint32_t>(at - starts_.begin()));
}

std::uint32_t StepTimes::last_until(double us) const {
  const double step = starts_.back();
  const auto lap = step > 0 && us > 0 ? static_cast<std::uint32_t>(us / step) : 0;
  const auto after = std::ranges::upper_bound(starts_, us - lap * step + kRoundingUs);
  const auto count = static_cast<std::uint32_t>(after - starts_.begin());
  return lap * ops() + std::min(ops(), count > 0 ? count - 1 : 0);
}

Demand whole_demand(const Profile& profile, const std::vector<Storage>& storages,
                    const Footprint& footprint) {
  return demand(profile, storages, std::vector<bool>(storages.size(), true), footprint);
}

std::uint64_t freed_bytes(const Footprint& footprint, const Storage& storage) {
  std::uint64_t bytes = 0;
  for (UnitId unit : footprint.units(storage.tensor))
    if (footprint.members(unit).size() == 1) bytes += footprint.bytes(unit);
  return bytes;
}

Pressure::Pressure(std::span<const std::uint64_t> held, std::uint64_t limit, const StepTimes& times)
    : limit_(static_cast<std::int64_t>(std::min(limit, kUnlimited))),
      held_(held),
      room_(std::vector<std::uint64_t>(held.size(), 0)),
      sums_(held.size() + 1, 0) {
  for (std::uint32_t k = 0; k < held.size(); ++k) {
    const bool critical = over(k);
    us_.push_back(times.end_us(k) - times.start_us(k));
    room_.add(k, k + 1, critical ? -static_cast<std::int64_t>(held[k]) : -kFar);
    if (critical) add_us(k, us_[k]);
  }
}

void Pressure::hold(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
  change(from, to, static_cast<std::int64_t>(bytes));
}
void Pressure::release(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
  change(from, to, -static_cast<std::int64_t>(bytes));
}

// Each op that ceases to be critical is found once.
void Pressure::change(std::uint32_t from, std::uint32_t to, std::int64_t bytes) {
  if (from >= to) return;
  held_.add(from, to, bytes);
  room_.add(from, to, -bytes);
  while (const auto relieved = room_.last_above(from, to, -limit_ - 1)) {
    const std::uint32_t op = *relieved % held_.ops();
    room_.add(op, op + 1, -kFar);
    add_us(op, -us_[op]);
  }
}

std::uint32_t Pressure::room_since(std::uint32_t from, std::uint32_t to,
                                   std::uint64_t bytes) const {
  const auto full = held_.last_above(from, to, limit_ - static_cast<std::int64_t>(bytes));
  return full ? *full + 1 : from;
}

double Pressure::critical_us(std::uint32_t from, std::uint32_t to) const {
  const std::uint32_t ops = held_.ops();
  if (from >= to) return 0;
  if (from >= ops) return critical_us(from - ops, to - ops);
  const double here = us_before(std::min(to, ops)) - us_before(from);
  return std::max(0.0, to > ops ? here + us_before(to - ops) : here);
}

void Pressure::add_us(std::uint32_t op, double us) {
  for (std::size_t i = std::size_t{op} + 1; i < sums_.size(); i += i & -i) sums_[i] += us;
}

double Pressure::us_before(std::uint32_t op) const {
  double us = 0;
  for (std::size_t i = op; i > 0; i -= i & -i) us += sums_[i];
  return us;
}

}  // namespace sentinel::plan
