#include "plan/passages.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/rates.h"

namespace sentinel::plan {
namespace {

constexpr double kMiB = 1 << 20;

void narrow(std::map<std::tuple<int, std::size_t, bool>, Passage>& passages, int kind,
            std::size_t index, bool way, double bytes_per_s, std::uint32_t tier, bool out) {
  if (bytes_per_s <= 0) return;
  Passage& p = passages[{kind, index, way}];
  p.mib_per_ms = bytes_per_s / 1e3 / kMiB;
  (out ? p.out : p.in).insert(tier);
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
        narrow(all, 2, i, second && !link.half_duplex, link.bw, t, out);
      }
    }
  std::vector<Passage> kept;
  for (const auto& [key, p] : all) {
    const auto covers = [&p = p](const Passage& q) {
      return q.mib_per_ms <= p.mib_per_ms && std::ranges::includes(q.out, p.out) &&
             std::ranges::includes(q.in, p.in);
    };
    if (std::ranges::any_of(kept, covers)) continue;
    std::erase_if(kept, [&p = p](const Passage& q) {
      return p.mib_per_ms <= q.mib_per_ms && std::ranges::includes(p.out, q.out) &&
             std::ranges::includes(p.in, q.in);
    });
    kept.push_back(p);
  }
  return kept;
}

}  // namespace sentinel::plan
