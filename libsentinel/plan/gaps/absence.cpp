// Gives up gaps one by one, and keeps the level of held bytes right.
#include "plan/gaps/absence.h"

#include <algorithm>

#include "plan/step/stabbing.h"

namespace sentinel::plan {
namespace {

std::vector<bool> movable(const Profile& profile, const std::vector<Storage>& storages,
                          const Layout& layout) {
  if (layout.placements.empty()) return std::vector<bool>(storages.size(), true);
  return find_movable(profile, storages, layout);
}

}  // namespace

Absences::Absences(const Profile& profile, const Machine& machine, const Layout& layout)
    : profile_(profile),
      exclusive_(machine.exclusive),
      storages_(plan::storages(profile)),
      gaps_(idle_gaps(profile, storages_, machine)),
      first_gap_(storages_.size() + 1, 0),
      bytes_(storages_.size(), 0),
      out_(gaps_.size(), 0),
      in_(gaps_.size(), 0),
      demand_(demand(profile, storages_, movable(profile, storages_, layout),
                     Footprint(profile, layout.placements, machine.granule_bytes))),
      level_(demand_.all) {
  for (const IdleGap& gap : gaps_) until_.push_back(gap.next);
  for (const IdleGap& gap : gaps_) ++first_gap_[gap.storage + 1];
  for (std::size_t i = 0; i < storages_.size(); ++i) first_gap_[i + 1] += first_gap_[i];
  const Footprint footprint(profile, layout.placements, machine.granule_bytes);
  const std::vector<bool> moves = movable(profile, storages_, layout);
  for (std::size_t i = 0; i < storages_.size(); ++i)
    for (UnitId u : footprint.units(storages_[i].tensor))
      if (moves[i] && footprint.members(u).size() == 1) bytes_[i] += footprint.bytes(u);
  of_.resize(profile.tensors.size(), UINT32_MAX);
  for (std::uint32_t i = 0; i < storages_.size(); ++i) {
    of_[storages_[i].tensor.index()] = i;
    if (storages_[i].carried) of_[storages_[i].carried->index()] = i;
  }
  for (std::uint32_t g = 0; g < gaps_.size(); ++g) written_.push_back(written_before(g));
}

bool Absences::written_before(std::uint32_t gap) const {
  const Storage& s = storage_of(gap);
  const auto [first, last] = gaps_of(gaps_[gap].storage);
  const auto writes = [&](std::uint32_t use) {
    return std::ranges::binary_search(profile_.ops[use % ops()].out, s.at(use, ops()));
  };
  const std::uint32_t until = gaps_[gap].use;
  if (gap > first) {
    const std::uint32_t since = gaps_[gap - 1].next;
    return std::ranges::any_of(s.uses,
                               [&](auto u) { return u >= since && u <= until && writes(u); });
  }
  // The first gap of a persistent storage: what the step before wrote after its last gap counts.
  const std::uint32_t since = gaps_[last - 1].next;
  return std::ranges::any_of(s.uses, [&](auto u) {
    const bool here = u <= until && (since < ops() || u + ops() >= since);
    return (here || u >= since) && writes(u);
  });
}

void Absences::leave(std::uint32_t gap, std::uint32_t out, std::uint32_t in) {
  stay(gap);
  in = std::min(in, until_[gap]);
  if (out >= in) return;
  out_[gap] = out;
  in_[gap] = in;
  level_.add(out, in, -static_cast<std::int64_t>(bytes(gap)));
}

void Absences::stay(std::uint32_t gap) {
  if (away(gap)) level_.add(out_[gap], in_[gap], static_cast<std::int64_t>(bytes(gap)));
  out_[gap] = in_[gap] = 0;
}

void Absences::need_back(std::span<const TensorId> tensors, std::uint32_t op) {
  for (TensorId t : tensors) {
    if (of_[t.index()] == UINT32_MAX) continue;
    const auto [first, last] = gaps_of(of_[t.index()]);
    for (std::uint32_t g = first; g < last; ++g) {
      const std::uint32_t at = position(g, op);
      if (at <= gaps_[g].use || at >= until_[g]) continue;
      until_[g] = at;
      if (away(g)) leave(g, out_[g], in_[g]);
    }
  }
}

void Absences::hold_more(std::uint32_t op, std::uint64_t bytes) {
  level_.add(op, op + 1, static_cast<std::int64_t>(bytes));
}

std::uint64_t Absences::most_needed() const {
  return demand_.must.empty() ? 0 : *std::ranges::max_element(demand_.must);
}

std::uint32_t Absences::peak_op() const {
  return level_.last_above(0, ops(), static_cast<std::int64_t>(peak()) - 1).value_or(0);
}

std::vector<std::uint32_t> give_way(Absences& absences, std::uint64_t limit,
                                    const std::vector<bool>& closed) {
  const auto& gaps = absences.gaps();
  Stabbing idle(absences.ops());
  for (std::uint32_t g = 0; g < gaps.size(); ++g) {
    // What is never read again is the farthest.
    const double next = gaps[g].next + (gaps[g].needed ? 0.0 : 2.0 * absences.ops());
    idle.add(gaps[g].use + 1, absences.until(g), next, next - absences.ops(), g);
  }
  std::vector<std::uint32_t> gone;
  std::vector<bool> taken = closed;
  for (std::uint32_t k = 0; k < absences.ops(); ++k)
    while (absences.held(k) > limit) {
      const auto gap = idle.heaviest(k, [&](std::uint32_t g) { return taken[g]; });
      if (!gap) break;
      taken[*gap] = true;
      absences.leave(*gap, gaps[*gap].use + 1, gaps[*gap].next);
      gone.push_back(*gap);
    }
  std::ranges::stable_sort(gone, {}, [&](std::uint32_t g) { return gaps[g].next - gaps[g].use; });
  std::erase_if(gone, [&](std::uint32_t g) {
    if (absences.bytes(g) > limit ||
        absences.over(absences.out(g), absences.in(g), limit - absences.bytes(g)))
      return false;
    absences.stay(g);
    return true;
  });
  return gone;
}

}  // namespace sentinel::plan
