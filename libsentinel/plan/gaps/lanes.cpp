// Sends what the host has no room for to the next tier: when its link is free, then the longest
// gaps.
#include "plan/gaps/lanes.h"

#include <algorithm>

#include "plan/gaps/pace.h"
#include "plan/step/level.h"
#include "plan/step/rates.h"

namespace sentinel::plan {

void assign_tiers(const Profile& profile, const std::vector<Storage>& storages,
                  const Machine& machine, std::span<const double> op_stall_us,
                  std::vector<Decision>& decisions) {
  const auto capacity = static_cast<std::int64_t>(machine.tiers[1].capacity);
  for (Decision& d : decisions) d.tier = 1;
  if (machine.tiers.size() < 3 || capacity == 0 || profile.ops.empty()) return;
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  const auto bytes = [&](const Decision& d) {
    return static_cast<std::int64_t>(storages[d.storage].bytes);
  };
  Level host(std::vector<std::uint64_t>(ops, 0));
  std::vector<Decision*> order;
  for (Decision& d : decisions)
    if (d.remedy == Remedy::swap) {
      order.push_back(&d);
      host.add(d.use, d.next, bytes(d));
    }
  std::ranges::stable_sort(order, {}, &Decision::use);
  const Pace pace(profile, machine, op_stall_us);
  const double us_per_byte = 1 / rate(machine, 0, 2);
  const auto send = [&](Decision& d) {
    d.tier = 2;
    host.add(d.use, d.next, -bytes(d));
  };
  double free_us = 0;  // when the second tier's link is
  for (Decision* d : order) {
    const double ready = pace.end_us(d->use % ops);
    if (free_us > ready || host.most(d->use, d->next) <= capacity) continue;
    send(*d);
    free_us = ready + static_cast<double>(bytes(*d)) * us_per_byte;
  }
  // The longest gaps last: they have the most time for a slow way.
  std::ranges::stable_sort(order, std::greater{},
                           [](const Decision* d) { return d->next - d->use; });
  for (Decision* d : order)
    if (d->tier == 1 && host.most(d->use, d->next) > capacity) send(*d);
}

}  // namespace sentinel::plan
