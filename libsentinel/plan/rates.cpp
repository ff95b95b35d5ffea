#include "plan/rates.h"

#include <algorithm>
#include <limits>

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

double each_way(const LinkSpec& link) { return link.half_duplex ? link.bw / 2 : link.bw; }

double rate(const Machine& machine, std::uint32_t from, std::uint32_t to) {
  double bytes_per_s = lone_rate(machine, from, to) * 1e6;
  for (std::size_t i : links_between(machine, from, to))
    if (const double way = each_way(machine.links[i]); way > 0)
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

double shared_rate(const Machine& machine, std::uint32_t tier) {
  double bytes_per_s = std::numeric_limits<double>::infinity();
  for (std::size_t i : links_between(machine, tier, 0))
    if (const LinkSpec& link = machine.links[i]; link.half_duplex && link.bw > 0)
      bytes_per_s = std::min(bytes_per_s, link.bw);
  return bytes_per_s / 1e6;
}

}  // namespace sentinel::plan
