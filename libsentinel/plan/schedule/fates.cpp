// Keeps gaps that find room after all, and tells how long a left one is away.
#include "plan/schedule/fates.h"

#include <algorithm>

#include "plan/step/level.h"

namespace sentinel::plan {
namespace {

// The gaps of one storage lie together, by use.
std::uint32_t first_of(const Schedule& schedule, std::uint32_t gap) {
  while (gap > 0 && schedule.gaps[gap - 1].storage == schedule.gaps[gap].storage) --gap;
  return gap;
}

bool last_of(const Schedule& schedule, std::uint32_t gap) {
  return gap + 1 == schedule.gaps.size() ||
         schedule.gaps[gap + 1].storage != schedule.gaps[gap].storage;
}

class SpareRoom {
 public:
  SpareRoom(const ScheduleInput& in, const Schedule& schedule) : in_(in), held_(schedule.held) {}

  void add(std::uint32_t begin, std::uint32_t end, std::int64_t bytes) {
    if (begin < end) held_.add(begin, end, bytes);
  }
  bool fits(const Gap& gap) const {
    return held_.most(gap.out, gap.in) + bytes(gap, false) <= static_cast<std::int64_t>(in_.limit);
  }
  // Of the storage's granules, or of those that it shares with no other.
  std::int64_t bytes(const Gap& gap, bool own) const {
    std::uint64_t sum = 0;
    for (UnitId u : in_.footprint.units(in_.storages[gap.storage].tensor))
      if (!own || in_.footprint.members(u).size() == 1) sum += in_.footprint.bytes(u);
    return static_cast<std::int64_t>(sum);
  }

 private:
  const ScheduleInput& in_;
  Level held_;
};

}  // namespace

std::vector<bool> stays_away(const ScheduleInput& in, const Schedule& schedule,
                             const Fates& fates) {
  std::vector<bool> away(schedule.gaps.size(), false);
  for (std::uint32_t g = 0; g < away.size(); ++g) {
    if (fates[g] != Fate::leave) continue;
    if (!last_of(schedule, g))
      away[g + 1] = true;
    else if (in.storages[schedule.gaps[g].storage].persistent)
      away[first_of(schedule, g)] = true;
  }
  return away;
}

std::uint32_t away_until(const ScheduleInput& in, const Schedule& schedule, std::uint32_t g) {
  const Storage& s = in.storages[schedule.gaps[g].storage];
  if (!last_of(schedule, g)) return schedule.gaps[g + 1].use;
  const auto ops = static_cast<std::uint32_t>(in.profile.ops.size());
  return s.persistent ? schedule.gaps[first_of(schedule, g)].use + ops : s.last;
}

void keep_what_fits(const ScheduleInput& in, const Schedule& schedule, Fates& fates) {
  const auto away = stays_away(in, schedule, fates);
  SpareRoom room(in, schedule);
  std::vector<std::uint32_t> order;
  for (std::uint32_t g = 0; g < fates.size(); ++g) {
    const Gap& gap = schedule.gaps[g];
    if (fates[g] == Fate::leave) {
      room.add(gap.in, away_until(in, schedule, g) + 1, -room.bytes(gap, true));
    } else if (gap.needed && !gap.forced && !gap.unfetched && !away[g] && gap.out < gap.in) {
      order.push_back(g);
    }
  }
  if (order.size() == fates.size()) return;  // nothing was left, so nothing changed
  std::ranges::stable_sort(
      order, {}, [&](std::uint32_t g) { return schedule.gaps[g].next - schedule.gaps[g].use; });
  for (std::uint32_t g : order) {
    const Gap& gap = schedule.gaps[g];
    if (!room.fits(gap)) continue;
    room.add(gap.out, gap.in, room.bytes(gap, false));
    fates[g] = Fate::keep;
  }
}

}  // namespace sentinel::plan
