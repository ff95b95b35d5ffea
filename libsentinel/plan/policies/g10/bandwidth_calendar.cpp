// Deals a transfer's bytes out over ops, as each has bandwidth left.
#include "plan/policies/g10/bandwidth_calendar.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "plan/step/rates.h"

namespace sentinel::plan {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr double kFastest = 1e12;     // bytes per microsecond, where the machine states no limit
constexpr double kRoundingUs = 1e-3;  // of sums of times
constexpr double kNothing = 1;        // bytes: less than this is rounding

// Bytes per microsecond of what all transfers of a direction have in common.
double common_rate(const Machine& machine, bool out) {
  std::vector<std::size_t> common = links_between(machine, 1, 0);
  for (std::uint32_t t = 2; t < machine.tiers.size(); ++t) {
    const auto links = links_between(machine, t, 0);
    std::erase_if(common, [&](std::size_t l) { return std::ranges::count(links, l) == 0; });
  }
  const double fast = out ? machine.tiers[0].read_bw : machine.tiers[0].write_bw;
  double bw = fast > 0 ? fast : kUnlimited;
  for (std::size_t link : common)
    if (const double way = each_way(machine, machine.links[link], out ? 0 : 1, out ? 1 : 0);
        way > 0)
      bw = std::min(bw, way);
  return bw / 1e6;
}

std::vector<double> capacity(const StepTimes& times, double bytes_per_us) {
  std::vector<double> bytes;
  for (std::uint32_t k = 0; k < times.ops(); ++k)
    bytes.push_back((times.end_us(k) - times.start_us(k)) * bytes_per_us);
  return bytes;
}

// What is left of the common link for the other tiers beside the slowest one.
void deal_out(std::vector<double>& rates, double common) {
  for (std::size_t t = 1; t + 1 < rates.size(); ++t)
    rates[t] = std::max(std::min(rates[t], common - rates.back()), common / 100);
}

}  // namespace

BandwidthCalendar::BandwidthCalendar(const StepTimes& times, const Machine& machine, bool shared)
    : times_(times), ops_(times.ops()), out_(machine.tiers.size()), in_(machine.tiers.size()) {
  for (const bool out : {true, false}) {
    const double common = common_rate(machine, out);
    std::vector<double> rates{0};
    for (std::uint32_t t = 1; t < machine.tiers.size(); ++t)
      rates.push_back(std::min(kFastest, out ? rate(machine, 0, t) : rate(machine, t, 0)));
    if (shared && std::isfinite(common))
      (out ? common_out_ : common_in_) = capacity(times, common);
    else if (std::isfinite(common))
      deal_out(rates, common);
    for (std::uint32_t t = 1; t < machine.tiers.size(); ++t) {
      Way& way = (out ? out_ : in_)[t];
      way = {.bytes_per_us = rates[t],
             .latency_us = machine.tiers[t].latency_us,
             .free = capacity(times, rates[t]),
             .skip = std::vector<std::uint32_t>(std::size_t{ops_} + 1)};
      std::iota(way.skip.begin(), way.skip.end(), 0u);
    }
  }
}

double BandwidthCalendar::alone_us(const Way& way, std::uint64_t bytes) {
  return way.latency_us + static_cast<double>(bytes) / way.bytes_per_us;
}
double BandwidthCalendar::write_us(std::uint32_t tier, std::uint64_t bytes) const {
  return alone_us(out_[tier], bytes);
}
double BandwidthCalendar::read_us(std::uint32_t tier, std::uint64_t bytes) const {
  return alone_us(in_[tier], bytes);
}

double BandwidthCalendar::free(const Way& way, const std::vector<double>& common,
                               std::uint32_t op) const {
  return common.empty() ? way.free[op] : std::min(way.free[op], common[op]);
}

void BandwidthCalendar::take(Way& way, std::vector<double>& common, std::uint32_t op,
                             double bytes) {
  way.free[op] -= bytes;
  if (!common.empty()) common[op] -= bytes;
}

// The first position from here on whose op has something free; one step further on if none has.
// A way out is asked forwards only, a way in backwards only: each has `skip` for its direction.
std::uint32_t BandwidthCalendar::next_free(Way& way, const std::vector<double>& common,
                                           std::uint32_t position) {
  const std::uint32_t end = position + ops_;
  while (position < end) {
    const std::uint32_t lap = position / ops_ * ops_;
    std::uint32_t op = position - lap;
    while (way.skip[op] != op) op = way.skip[op] = way.skip[way.skip[op]];
    if (op < ops_ && free(way, common, op) >= kNothing) return lap + op;
    if (op < ops_) way.skip[op] = op + 1;
    position = lap + (op < ops_ ? op + 1 : op);
  }
  return end;
}

// The last position from here back to `from` whose op has something free. Op k is entry k + 1 of
// `skip`, entry 0 lies before the step.
std::optional<std::uint32_t> BandwidthCalendar::last_free(Way& way,
                                                          const std::vector<double>& common,
                                                          std::uint32_t from,
                                                          std::uint32_t position) {
  while (true) {
    const std::uint32_t lap = position / ops_ * ops_;
    std::uint32_t entry = position - lap + 1;
    while (way.skip[entry] != entry) entry = way.skip[entry] = way.skip[way.skip[entry]];
    if (entry > 0 && lap + entry - 1 < from) return std::nullopt;
    if (entry > 0 && free(way, common, entry - 1) >= kNothing) return lap + entry - 1;
    if (entry > 0) way.skip[entry] = entry - 1;
    const std::uint32_t before = entry > 0 ? lap + entry - 1 : lap;  // exclusive
    if (before == 0 || before <= from) return std::nullopt;
    position = before - 1;
  }
}

bool BandwidthCalendar::write_blocked(std::uint32_t tier, std::uint64_t bytes, std::uint32_t from) {
  const double done_us = times_.start_us(from) + write_us(tier, bytes);
  return times_.start_us(next_free(out_[tier], common_out_, from)) >= done_us - kRoundingUs;
}

std::optional<std::uint32_t> BandwidthCalendar::write_end(std::uint32_t tier, std::uint64_t bytes,
                                                          std::uint32_t from, std::uint32_t to) {
  double left = static_cast<double>(bytes);
  for (std::uint32_t p = from; p < to; ++p) {
    p = next_free(out_[tier], common_out_, p);
    if (p >= to) break;
    left -= free(out_[tier], common_out_, p % ops_);
    if (left < kNothing) return p + 1;
  }
  return std::nullopt;
}

void BandwidthCalendar::book_write(std::uint32_t tier, std::uint64_t bytes, std::uint32_t from,
                                   std::uint32_t to) {
  double left = static_cast<double>(bytes);
  for (std::uint32_t p = from; p < to && left >= kNothing; ++p) {
    p = next_free(out_[tier], common_out_, p);
    if (p >= to) return;
    const double now = std::min(left, free(out_[tier], common_out_, p % ops_));
    take(out_[tier], common_out_, p % ops_, now);
    left -= now;
  }
}

std::optional<std::uint32_t> BandwidthCalendar::read_start(std::uint32_t tier, std::uint64_t bytes,
                                                           std::uint32_t from, std::uint32_t to) {
  double left = static_cast<double>(bytes);
  while (to > from) {
    const auto p = last_free(in_[tier], common_in_, from, to - 1);
    if (!p) break;
    left -= free(in_[tier], common_in_, *p % ops_);
    if (left < kNothing) return *p;
    to = *p;
  }
  return std::nullopt;
}

void BandwidthCalendar::book_read(std::uint32_t tier, std::uint64_t bytes, std::uint32_t from,
                                  std::uint32_t to) {
  double left = static_cast<double>(bytes);
  while (to > from && left >= kNothing) {
    const auto p = last_free(in_[tier], common_in_, from, to - 1);
    if (!p) return;
    const double now = std::min(left, free(in_[tier], common_in_, *p % ops_));
    take(in_[tier], common_in_, *p % ops_, now);
    left -= now;
    to = *p;
  }
}

}  // namespace sentinel::plan
