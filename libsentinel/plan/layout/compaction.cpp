// Gives small tensors slots in shared granules, those that live within one layer in an area of
// their own.
#include "plan/layout/compaction.h"

#include <algorithm>
#include <bit>
#include <map>

#include "plan/layout/pack.h"

namespace sentinel::plan {
namespace {

// An area of granules, each cut into slots of one size.
class Slots {
 public:
  explicit Slots(std::uint64_t granule_bytes) : granule_(granule_bytes) {}

  std::uint64_t take(std::uint64_t bytes) {
    const std::uint64_t size = slot(bytes);
    auto& free = free_[size];
    if (free.empty()) {
      for (std::uint64_t at = granule_ / size; at-- > 0;) free.push_back(end_ + at * size);
      end_ += granule_;
    }
    const std::uint64_t offset = free.back();
    free.pop_back();
    return offset;
  }
  void give(std::uint64_t offset, std::uint64_t bytes) { free_[slot(bytes)].push_back(offset); }
  std::uint64_t end() const { return end_; }

 private:
  std::uint64_t slot(std::uint64_t bytes) const {
    return std::min(granule_, std::bit_ceil(std::max(bytes, kAlignment)));
  }

  std::uint64_t granule_, end_ = 0;
  std::map<std::uint64_t, std::vector<std::uint64_t>> free_;  // by slot size
};

// Offsets of the chosen storages, in the order of their first ops. What crosses the step's end
// keeps its slot for good.
std::uint64_t fill(std::vector<const Storage*> chosen, std::uint32_t ops, std::uint64_t granule,
                   std::vector<std::pair<const Storage*, std::uint64_t>>& offsets) {
  Slots slots(granule);
  std::vector<std::vector<std::size_t>> ends(ops);
  std::ranges::stable_sort(chosen, {}, &Storage::first);
  const std::size_t begin = offsets.size();
  std::uint32_t swept = 0;  // what ended before this op has been given back
  for (const bool crossing : {true, false})
    for (const Storage* s : chosen) {
      if ((s->last >= ops) != crossing) continue;
      for (; !crossing && swept < s->first; ++swept)
        for (std::size_t i : ends[swept]) slots.give(offsets[i].second, offsets[i].first->bytes);
      if (!crossing) ends[s->last].push_back(offsets.size());
      offsets.emplace_back(s, slots.take(s->bytes));
    }
  std::sort(offsets.begin() + static_cast<std::ptrdiff_t>(begin), offsets.end(),
            [](const auto& a, const auto& b) { return a.first->tensor < b.first->tensor; });
  return slots.end();
}

}  // namespace

Layout compact(const Profile& profile, const std::vector<Storage>& storages,
               std::uint64_t granule_bytes) {
  Layout layout;
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  for (const Pool pool : {Pool::short_lived, Pool::resident}) {
    std::vector<const Storage*> chosen;
    for (const Storage& s : storages)
      if (!s.persistent && below_granule(s, granule_bytes) &&
          s.short_lived() == (pool == Pool::short_lived))
        chosen.push_back(&s);
    if (chosen.empty()) continue;
    std::vector<std::pair<const Storage*, std::uint64_t>> offsets;
    const std::uint64_t bytes = fill(std::move(chosen), ops, granule_bytes, offsets);
    const GroupId group(layout.groups.size());
    for (const auto& [s, offset] : offsets)
      layout.placements.push_back({s->tensor, group, layout.region_bytes + offset});
    layout.groups.push_back(
        {.pool = pool,
         .offset = layout.region_bytes,
         .bytes = bytes,
         .first_layer = LayerId(0),
         .last_layer = LayerId(std::max<std::size_t>(profile.layers.size(), 1) - 1),
         .reason = "smaller than a granule: compacted"});
    layout.region_bytes += bytes;
    if (pool == Pool::short_lived) layout.reserved_bytes += bytes;
  }
  std::ranges::sort(layout.placements, {}, &Placement::tensor);
  return layout;
}

}  // namespace sentinel::plan
