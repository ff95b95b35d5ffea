// What a step holds at each op while gaps of its storages are given up one by one: the working
// state of the policies that lower a peak gap by gap. Accounts as decided_plan() does: a storage on
// its way out holds its space, and so does one on its way in.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/gaps/decisions.h"
#include "plan/schedule/schedule.h"
#include "plan/step/footprint.h"
#include "plan/step/level.h"
#include "plan/step/storage.h"
#include "sentinel/machine.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

class Absences {
 public:
  // With a layout, what it shares granules for, and what never moves, is counted as it lies.
  Absences(const Profile&, const Machine&, const Layout& = {});

  const Profile& profile() const { return profile_; }
  std::uint32_t ops() const { return static_cast<std::uint32_t>(profile_.ops.size()); }
  const std::vector<Storage>& storages() const { return storages_; }
  const Storage& storage_of(std::uint32_t gap) const { return storages_[gaps_[gap].storage]; }
  const std::vector<IdleGap>& gaps() const { return gaps_; }
  // Gaps of one storage: [first, last) of gaps().
  std::pair<std::uint32_t, std::uint32_t> gaps_of(std::uint32_t storage) const {
    return {first_gap_[storage], first_gap_[storage + 1]};
  }
  // That leaving frees: granules shared with another tensor do not count.
  std::uint64_t bytes(std::uint32_t gap) const { return bytes_[gaps_[gap].storage]; }
  // Position of an op within a gap that it lies in.
  std::uint32_t position(std::uint32_t gap, std::uint32_t op) const {
    return op > gaps_[gap].use ? op : op + ops();
  }

  // Absent during the positions [out, in), at most until need_back()'s; an earlier absence of the
  // gap is forgotten.
  void leave(std::uint32_t gap, std::uint32_t out, std::uint32_t in);
  void stay(std::uint32_t gap);
  bool away(std::uint32_t gap) const { return out_[gap] < in_[gap]; }
  // A replay before `op` reads the tensors: whichever gap of theirs the op lies in, its storage has
  // to be back by then and stays until the gap's end.
  void need_back(std::span<const TensorId>, std::uint32_t op);
  std::uint32_t until(std::uint32_t gap) const { return until_[gap]; }
  std::uint32_t out(std::uint32_t gap) const { return out_[gap]; }
  std::uint32_t in(std::uint32_t gap) const { return in_[gap]; }
  void hold_more(std::uint32_t op, std::uint64_t bytes);  // what replays before it need

  std::uint64_t held(std::uint32_t op) const { return static_cast<std::uint64_t>(level_.at(op)); }
  std::uint64_t peak() const { return static_cast<std::uint64_t>(level_.most(0, ops())); }
  std::uint32_t peak_op() const;  // the last one
  // Whether more than `limit` is held at some position of [first, last).
  bool over(std::uint32_t first, std::uint32_t last, std::uint64_t limit) const {
    return first < last && level_.most(first, last) > static_cast<std::int64_t>(limit);
  }
  std::uint64_t most_needed() const;  // by one op, with everything idle away

  // Whether what the gap gives up has to be written: nothing elsewhere holds the same bytes. A copy
  // made by an earlier eviction, for which `swapped` says true, lasts until the storage is written.
  template <class Swapped>
  bool dirty(std::uint32_t gap, Swapped swapped) const;
  // Whether the storage is written between its gap before and this one.
  bool written(std::uint32_t gap) const { return written_[gap]; }

 private:
  bool written_before(std::uint32_t gap) const;

  const Profile& profile_;
  bool exclusive_;  // the machine
  std::vector<Storage> storages_;
  std::vector<IdleGap> gaps_;
  std::vector<std::uint32_t> first_gap_;
  std::vector<std::uint64_t> bytes_;     // per storage
  std::vector<std::uint32_t> out_, in_;  // per gap
  std::vector<std::uint32_t> until_;     // per gap: back by then
  std::vector<std::uint32_t> of_;        // per tensor, its storage
  std::vector<bool> written_;            // per gap
  Demand demand_;
  Level level_;
};

template <class Swapped>
bool Absences::dirty(std::uint32_t gap, Swapped swapped) const {
  if (exclusive_) return true;
  const auto [first, last] = gaps_of(gaps_[gap].storage);
  const bool cyclic = storage_of(gap).persistent;
  for (std::uint32_t g = gap, seen = 0; seen < last - first; ++seen) {
    if (written_[g]) return true;
    if (g == first && !cyclic) return true;  // made in this step
    g = g == first ? last - 1 : g - 1;
    if (swapped(g)) return false;
  }
  return false;  // never written: a copy made once is good for ever
}

// Makes everything fit into `limit` bytes where there is no way without waiting: ops in order, of
// what idles at an op that holds too much, the storage of the farthest next use goes as soon as it
// is used and comes back when it is needed. Then those that the others make superfluous stay after
// all, the shortest first. `closed` gaps stay as they are. Returned are the gaps that are away now,
// and for all of their time; one that was away for a part before may be away no more.
std::vector<std::uint32_t> give_way(Absences&, std::uint64_t limit,
                                    const std::vector<bool>& closed);

}  // namespace sentinel::plan
