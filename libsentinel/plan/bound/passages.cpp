// Finds the sets of links and ports that all traffic crosses.
#include "plan/bound/passages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "plan/step/rates.h"

namespace sentinel::plan {
namespace {

constexpr double kMiB = 1 << 20;

void narrow(std::map<std::tuple<int, std::size_t, bool>, Passage>& passages, int kind,
            std::size_t index, bool way, double bytes_per_s, std::uint32_t tier, bool out,
            double weight = 1) {
  if (bytes_per_s <= 0) return;
  Passage& p = passages[{kind, index, way}];
  p.mib_per_ms = bytes_per_s / 1e3 / kMiB;
  (out ? p.out : p.in).emplace(tier, weight);
}

// Whether whatever holds up the second is held up by the first at least as long.
bool covers(const Passage& p, const Passage& q) {
  const auto all = [&](const auto& mine, const auto& others) {
    return std::ranges::all_of(others, [&](const auto& other) {
      const auto at = mine.find(other.first);
      return at != mine.end() && at->second * q.mib_per_ms >= other.second * p.mib_per_ms;
    });
  };
  return all(p.out, q.out) && all(p.in, q.in);
}

}  // namespace

std::vector<Passage> passages(const Machine& machine) {
  std::map<std::tuple<int, std::size_t, bool>, Passage> all;
  for (std::uint32_t t = 1; t < machine.tiers.size(); ++t)
    for (const bool out : {true, false}) {
      const std::uint32_t from = out ? 0 : t, to = out ? t : 0;
      narrow(all, 0, from, false, machine.tiers[from].read_bw, t, out);
      narrow(all, 1, to, false, machine.tiers[to].write_bw, t, out);
      for (std::size_t i : links_between(machine, from, to)) {
        const LinkSpec& link = machine.links[i];
        const bool port = link.tiers.size() == 1;
        const bool second = port ? machine.tiers[to].name == link.tiers.front() : to < from;
        narrow(all, 2, i, second && !link.half_duplex, link.bw, t, out,
               weight(machine, link, from, to));
      }
    }
  std::vector<Passage> kept;
  for (const auto& [key, p] : all) {
    const Passage& fresh = p;
    if (std::ranges::any_of(kept, [&](const Passage& q) { return covers(q, fresh); })) continue;
    std::erase_if(kept, [&](const Passage& q) { return covers(fresh, q); });
    kept.push_back(p);
  }
  return kept;
}

double most_mib_per_ms(const Machine& machine) {
  const std::size_t slower = machine.tiers.size() - 1;
  double sum = 0;
  for (std::uint32_t t = 1; t <= slower; ++t)
    sum += (lone_rate(machine, 0, t) + lone_rate(machine, t, 0)) * 1e3 / kMiB;
  for (const Passage& p : passages(machine)) {
    if (p.out.size() < slower || p.in.size() < slower) continue;
    double least = std::numeric_limits<double>::infinity();
    for (const auto* way : {&p.out, &p.in})
      for (const auto& [tier, weight] : *way) least = std::min(least, weight);
    sum = std::min(sum, p.mib_per_ms / least);
  }
  return sum;
}

double flowing_ms_per_mib(const Machine& machine) {
  return std::min(moving_us(machine, kMiB) / 1e3, (1 - kLeastSpeed) / most_mib_per_ms(machine));
}

PassingCost passing_cost(const Machine& machine) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  PassingCost least{.in = kInfinity,
                    .out = kInfinity,
                    .turn_in = kInfinity,
                    .turn_out = kInfinity,
                    .processors = flowing_ms_per_mib(machine)};
  for (std::uint32_t t = 1; t < machine.tiers.size(); ++t) {
    least.in = std::min(least.in, kMiB / lone_rate(machine, t, 0) / 1e3);
    least.out = std::min(least.out, kMiB / lone_rate(machine, 0, t) / 1e3);
    least.turn_in = std::min(least.turn_in, turns_us(machine, t, kMiB, 0) / 1e3);
    least.turn_out = std::min(least.turn_out, turns_us(machine, t, 0, kMiB) / 1e3);
  }
  return least;
}

}  // namespace sentinel::plan
