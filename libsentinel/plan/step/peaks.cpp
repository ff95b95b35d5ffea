// Walks the cyclic step in time: what is wanted soon is wanted now.
#include "plan/step/peaks.h"

#include <algorithm>
#include <numeric>

#include "base/units.h"
#include "sentinel/analysis.h"

namespace sentinel::plan {
namespace {

constexpr std::uint64_t kSizes = 8;         // of leases, between base and most
constexpr std::uint64_t kSmallest = 8_MiB;  // a change of less is not worth a message

// Of ops without times each takes as long.
std::vector<double> times_of(const Profile& profile) {
  std::vector<double> us;
  for (const auto& op : profile.ops) us.push_back(op.us);
  if (std::accumulate(us.begin(), us.end(), 0.0) <= 0) us.assign(us.size(), 1e3);
  return us;
}

// Per op, the most that is wanted within so long after its beginning; the step's end is its
// beginning again.
std::vector<std::uint64_t> looking_ahead(const std::vector<std::uint64_t>& wanted,
                                         const std::vector<double>& us, double ahead_us) {
  const auto ops = wanted.size();
  std::vector<std::uint64_t> seen(ops);
  for (std::size_t op = 0; op < ops; ++op) {
    seen[op] = wanted[op];
    double until = us[op];
    for (std::size_t more = 1; more < ops && until <= ahead_us; ++more) {
      seen[op] = std::max(seen[op], wanted[(op + more) % ops]);
      until += us[(op + more) % ops];
    }
  }
  return seen;
}

// A fall is followed only where nothing as large comes soon.
void fill_valleys(std::vector<std::uint64_t>& wanted, const std::vector<double>& us,
                  double valley_us) {
  const auto soon = looking_ahead(wanted, us, valley_us);
  auto held = wanted.back();
  for (int lap = 0; lap < 2; ++lap)  // what the end holds, the beginning falls from
    for (std::size_t op = 0; op < wanted.size(); ++op)
      held = wanted[op] = std::max(wanted[op], std::min(held, soon[op]));
}

}  // namespace

std::vector<std::uint64_t> held_bytes(const Profile& profile, std::uint64_t frames_bytes) {
  auto bytes = live_bytes(profile);
  for (auto& each : bytes) each += each / 32 + frames_bytes;
  return bytes;
}

std::uint64_t usual_bytes(const Profile& profile, std::uint64_t frames_bytes) {
  const auto held = held_bytes(profile, frames_bytes);
  const auto us = times_of(profile);
  std::vector<std::size_t> ops(held.size());
  std::iota(ops.begin(), ops.end(), 0);
  std::ranges::sort(ops, {}, [&](std::size_t op) { return held[op]; });
  double left = std::accumulate(us.begin(), us.end(), 0.0) / 2;
  for (const auto op : ops)
    if ((left -= us[op]) <= 0) return held[op];
  return held.empty() ? 0 : held[ops.back()];
}

std::vector<std::uint64_t> peaks(const Profile& profile, const PeakOptions& options) {
  if (options.most <= options.base || profile.ops.empty()) return {};
  const auto beyond = options.most - options.base;
  const auto size = std::max((beyond + kSizes - 1) / kSizes, kSmallest);
  auto wanted = held_bytes(profile, options.frames_bytes);
  bool any = false;
  for (auto& bytes : wanted) {
    const auto over = bytes - std::min(bytes, options.base);
    bytes = std::min(beyond, (over + size - 1) / size * size);
    any |= bytes != 0;
  }
  if (!any) return {};
  const auto us = times_of(profile);
  wanted = looking_ahead(wanted, us, options.ahead_us);
  fill_valleys(wanted, us, options.valley_us);
  return wanted;
}

}  // namespace sentinel::plan
