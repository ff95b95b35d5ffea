// Finds the links between two tiers, and the rate of their slowest part.
#include "plan/step/rates.h"

#include <algorithm>
#include <limits>

#include "plan/step/footprint.h"

namespace sentinel::plan {

std::vector<std::size_t> links_between(const Machine& machine, std::uint32_t from,
                                       std::uint32_t to) {
  const auto crosses = [&](const std::vector<std::string>& tiers) {
    const auto names = [&](std::uint32_t tier) {
      return std::find(tiers.begin(), tiers.end(), machine.tiers[tier].name) != tiers.end();
    };
    return tiers.size() == 1 ? names(from) || names(to) : names(from) && names(to);
  };
  std::vector<std::size_t> crossed;
  for (std::size_t i = 0; i < machine.links.size(); ++i)
    if (crosses(machine.links[i].tiers)) crossed.push_back(i);
  return crossed;
}

double weight(const Machine& machine, const LinkSpec& link, std::uint32_t from, std::uint32_t to) {
  if (!link.half_duplex || link.tiers.size() != 1) return 1;
  const bool out_of_it = machine.tiers[from].name == link.tiers.front();
  const TierSpec& tier = machine.tiers[out_of_it ? from : to];
  const double own = out_of_it ? tier.read_bw : tier.write_bw,
               other = out_of_it ? tier.write_bw : tier.read_bw;
  if (own <= 0) return 1;  // no limit of its own
  const double faster = other > 0 ? std::max(own, other) : link.bw;
  return std::max(1.0, std::min(link.bw, faster) / own);
}

double each_way(const Machine& machine, const LinkSpec& link, std::uint32_t from,
                std::uint32_t to) {
  if (!link.half_duplex) return link.bw;
  return link.bw / (weight(machine, link, from, to) + weight(machine, link, to, from));
}

double rate(const Machine& machine, std::uint32_t from, std::uint32_t to) {
  double bytes_per_s = lone_rate(machine, from, to) * 1e6;
  for (std::size_t i : links_between(machine, from, to))
    if (const double way = each_way(machine, machine.links[i], from, to); way > 0)
      bytes_per_s = std::min(bytes_per_s, way);
  return bytes_per_s / 1e6;
}

double lone_rate(const Machine& machine, std::uint32_t from, std::uint32_t to) {
  double bytes_per_s = std::numeric_limits<double>::infinity();
  const auto limit = [&](double bw) {
    if (bw > 0) bytes_per_s = std::min(bytes_per_s, bw);
  };
  limit(machine.tiers[from].read_bw);
  limit(machine.tiers[to].write_bw);
  for (std::size_t i : links_between(machine, from, to)) limit(machine.links[i].bw);
  return bytes_per_s / 1e6;
}

double turns_us(const Machine& machine, std::uint32_t tier, double in, double out) {
  double us = 0;
  for (std::size_t i : links_between(machine, tier, 0))
    if (const LinkSpec& link = machine.links[i]; link.half_duplex && link.bw > 0)
      us = std::max(
          us, 1e6 / link.bw *
                  (in * weight(machine, link, tier, 0) + out * weight(machine, link, 0, tier)));
  return us;
}

double remaking_us(const Machine& machine, double bytes) {
  constexpr double kHashes = 2;
  const TierSpec& fast = machine.tiers[0];
  if (!shares_granules(machine.granule_bytes)) return 0;
  const auto pass = [&](double bw) { return bw > 0 ? 1e6 * bytes / bw : 0; };
  return kHashes * pass(fast.read_bw) + pass(fast.write_bw);
}

double moving_us(const Machine& machine, double bytes) {
  return machine.cpu_s_per_gb * bytes / 1e3;
}

bool has_in_place(const Machine& machine) {
  return std::any_of(machine.tiers.begin() + 1, machine.tiers.end(),
                     [](const TierSpec& tier) { return tier.byte_addressable; });
}

}  // namespace sentinel::plan
