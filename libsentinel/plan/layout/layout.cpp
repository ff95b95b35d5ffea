// Builds the layout's groups: resident area, short-lived pool, bundles of similar lives.
#include "plan/layout/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "plan/layout/pack.h"

namespace sentinel::plan {
namespace {

constexpr std::uint64_t kPage = 4096;

using Members = std::vector<const Storage*>;

bool wasteful(std::uint64_t bytes, std::uint64_t granule) {
  return round_up(bytes, granule) - bytes > bytes / 8;
}

std::uint64_t packed_bytes(const Members& members) {
  std::uint64_t sum = 0;
  for (const Storage* s : members) sum += round_up(s->bytes, kAlignment);
  return sum;
}

struct Bundle {  // members of one group, not placed yet
  LayerId first, last;
  Members members;
  bool joined = false;  // of several lifetimes
};

class LayoutBuilder {
 public:
  LayoutBuilder(const Profile& profile, std::uint64_t granule)
      : profile_(profile), granule_(granule) {}

  void short_pool(const Members& members);
  void resident_area(const Members& members);
  void long_groups(const Members& members);
  void mixed_group(Members members);
  Layout take();

 private:
  std::uint64_t place_reused(const Members& members, GroupId group);
  std::vector<Bundle> join_similar(std::vector<Bundle> leftovers) const;
  void place_bundle(Bundle bundle);
  void place(const Storage& s, GroupId group, std::uint64_t offset);
  GroupId open_group(Pool pool, LayerId first, LayerId last, std::string reason);
  void close_group(std::uint64_t bytes);

  const Profile& profile_;
  std::uint64_t granule_;
  Layout layout_;
};

GroupId LayoutBuilder::open_group(Pool pool, LayerId first, LayerId last, std::string reason) {
  layout_.groups.push_back({.pool = pool,
                            .offset = layout_.region_bytes,
                            .first_layer = first,
                            .last_layer = last,
                            .reason = std::move(reason)});
  return GroupId(layout_.groups.size() - 1);
}

void LayoutBuilder::close_group(std::uint64_t bytes) {
  layout_.groups.back().bytes = round_up(bytes, granule_);
  layout_.region_bytes += layout_.groups.back().bytes;
}

void LayoutBuilder::place(const Storage& s, GroupId group, std::uint64_t offset) {
  layout_.placements.push_back({s.tensor, group, offset});
  if (s.carried) layout_.placements.push_back({*s.carried, group, offset});
}

// Tensors alive in different layers meet only where their lives overlap, so all can be packed at
// once; short-lived ones are packed layer by layer, which is the same and keeps it fast.
std::uint64_t LayoutBuilder::place_reused(const Members& members, GroupId group) {
  std::vector<PackedItem> blocks;
  for (const Storage* s : members) {
    const auto ops = static_cast<std::uint32_t>(profile_.ops.size());
    const bool crosses = s->last >= ops;  // alive at both ends of the step: never reused
    blocks.push_back({s->bytes, crosses ? 0 : s->first, crosses ? ops - 1 : s->last});
  }
  const std::uint64_t height = pack(blocks);
  for (std::size_t i = 0; i < members.size(); ++i)
    place(*members[i], group, layout_.groups[group.index()].offset + blocks[i].offset);
  return height;
}

void LayoutBuilder::short_pool(const Members& members) {
  if (members.empty()) return;
  std::map<std::uint32_t, Members> by_layer;
  for (const Storage* s : members) by_layer[s->first_layer.value].push_back(s);
  const GroupId group =
      open_group(Pool::short_lived, LayerId(0),
                 LayerId(profile_.layers.empty() ? 0 : profile_.layers.size() - 1),
                 "reserved pool of short-lived tensors, reused from layer to layer");
  std::uint64_t height = 0;
  for (const auto& [layer, tensors] : by_layer)
    height = std::max(height, place_reused(tensors, group));
  close_group(height);
  layout_.reserved_bytes = layout_.groups.back().bytes;
}

void LayoutBuilder::resident_area(const Members& members) {
  if (members.empty()) return;
  const GroupId group = open_group(
      Pool::resident, LayerId(0), LayerId(profile_.layers.empty() ? 0 : profile_.layers.size() - 1),
      "long-lived but too small to be worth moving");
  close_group(place_reused(members, group));
}

std::vector<Bundle> LayoutBuilder::join_similar(std::vector<Bundle> leftovers) const {
  std::vector<Bundle> joined;
  for (Bundle& b : leftovers) {
    Bundle* open = joined.empty() ? nullptr : &joined.back();
    const std::uint32_t slack = lifetime_slack(b.first, b.last, granule_);
    const bool similar =
        open && wasteful(packed_bytes(open->members), granule_) &&
        (b.last < b.first) == (open->last < open->first) &&
        b.first.value - open->first.value <= slack &&
        std::max(b.last, open->last).value - std::min(b.last, open->last).value <= slack;
    if (!similar) {
      joined.push_back(std::move(b));
      continue;
    }
    // The bundle keeps the bounds of its first member; members differ from it by the slack.
    open->joined = true;
    open->members.insert(open->members.end(), b.members.begin(), b.members.end());
  }
  return joined;
}

void LayoutBuilder::place_bundle(Bundle bundle) {
  std::stable_sort(bundle.members.begin(), bundle.members.end(),
                   [](const Storage* a, const Storage* b) { return a->accesses > b->accesses; });
  LayerId first = bundle.first, last = bundle.last;
  for (const Storage* s : bundle.members) {
    first = std::min(first, s->first_layer);
    last = std::max(last, s->last_layer);
  }
  const GroupId group = open_group(
      Pool::long_lived, first, last,
      fmt::format("{}alive from layer {} to {}, by access count",
                  bundle.joined ? "small, of similar lifetime: " : "", first.value, last.value));
  std::uint64_t top = 0;
  const auto whole = [&](const Storage* s) {
    return s->bytes >= granule_ && !wasteful(s->bytes, granule_);
  };
  for (const Storage* s : bundle.members)
    if (whole(s)) {
      place(*s, group, layout_.region_bytes + top);
      top += round_up(s->bytes, granule_);
    }
  for (const Storage* s : bundle.members)
    if (!whole(s)) {
      place(*s, group, layout_.region_bytes + top);
      top += round_up(s->bytes, kAlignment);
    }
  close_group(top);
}

void LayoutBuilder::long_groups(const Members& members) {
  std::map<std::pair<LayerId, LayerId>, Members> exact;
  for (const Storage* s : members) exact[{s->first_layer, s->last_layer}].push_back(s);
  std::vector<Bundle> leftovers;
  for (auto& [life, all] : exact) {
    const auto middle = std::stable_partition(all.begin(), all.end(), [&](const Storage* s) {
      return s->bytes >= granule_ && !wasteful(s->bytes, granule_);
    });
    Members rest(middle, all.end());
    if (granule_ > kPage && !rest.empty() && wasteful(packed_bytes(rest), granule_)) {
      all.erase(middle, all.end());
      leftovers.push_back({life.first, life.second, std::move(rest)});
    }
    if (!all.empty()) place_bundle({life.first, life.second, all});
  }
  for (Bundle& b : join_similar(std::move(leftovers))) place_bundle(std::move(b));
}

void LayoutBuilder::mixed_group(Members members) {
  if (members.empty()) return;
  std::ranges::stable_sort(members, {}, [](const Storage* s) { return s->first; });
  const GroupId group = open_group(
      Pool::mixed, LayerId(0), LayerId(profile_.layers.empty() ? 0 : profile_.layers.size() - 1),
      "in the order in which they are made");
  std::uint64_t top = 0;
  for (const Storage* s : members) {
    place(*s, group, layout_.region_bytes + top);
    top += round_up(s->bytes, kAlignment);
  }
  close_group(top);
}

Layout LayoutBuilder::take() {
  std::sort(layout_.placements.begin(), layout_.placements.end(),
            [](const Placement& a, const Placement& b) { return a.tensor < b.tensor; });
  return std::move(layout_);
}

// Largest sum of bytes alive at once, of tensors below `limit`.
std::uint64_t peak_below(const Members& members, std::uint64_t limit, std::size_t ops) {
  std::vector<std::int64_t> change(2 * ops + 1, 0);
  for (const Storage* s : members) {
    if (s->bytes >= limit) continue;
    change[s->last >= ops ? 0 : s->first] += static_cast<std::int64_t>(s->bytes);
    change[s->last + 1] -= static_cast<std::int64_t>(s->bytes);
  }
  std::int64_t now = 0, peak = 0;
  for (std::int64_t c : change) peak = std::max(peak, now += c);
  return static_cast<std::uint64_t>(peak);
}

// Below how many bytes a long-lived tensor stays in the resident area.
std::uint64_t resident_limit(const Members& members, std::size_t ops, std::uint64_t granule,
                             std::uint64_t budget) {
  if (granule <= kPage) return 0;
  std::uint64_t limit = granule / 8;
  while (limit >= kPage && peak_below(members, limit, ops) > budget / 16) limit /= 2;
  return limit < kPage ? 0 : limit;
}

}  // namespace

std::uint32_t lifetime_slack(LayerId first, LayerId last, std::uint64_t granule_bytes) {
  if (granule_bytes <= kPage) return 0;
  if (last < first) return 2;  // crosses the step's end
  return std::max<std::uint32_t>(2, (last.value - first.value) / 8);
}

std::vector<bool> find_movable(const Profile& profile, const std::vector<Storage>& storages,
                               const Layout& layout) {
  std::vector<bool> pinned(profile.tensors.size(), false);
  for (const Placement& p : layout.placements)
    pinned[p.tensor.index()] = layout.groups[p.group.index()].pool == Pool::short_lived ||
                               layout.groups[p.group.index()].pool == Pool::resident;
  std::vector<bool> movable;
  for (const Storage& s : storages) movable.push_back(!pinned[s.tensor.index()]);
  return movable;
}

Layout lay_out(const Profile& profile, const std::vector<Storage>& storages,
               std::uint64_t granule_bytes, std::uint64_t budget, LayoutRules rules) {
  Members brief, lasting, small, large;
  for (const Storage& s : storages)
    if (!s.persistent) (s.short_lived() ? brief : lasting).push_back(&s);
  const std::uint64_t limit = resident_limit(lasting, profile.ops.size(), granule_bytes, budget);
  for (const Storage* s : lasting) (s->bytes < limit ? small : large).push_back(s);

  LayoutBuilder builder(profile, granule_bytes);
  if (rules.pool) builder.short_pool(brief);
  if (!rules.co_locate) {
    builder.mixed_group(lasting);
    return builder.take();
  }
  builder.resident_area(small);
  builder.long_groups(large);
  return builder.take();
}

}  // namespace sentinel::plan
