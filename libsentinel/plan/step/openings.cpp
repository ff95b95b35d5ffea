// Shares a profile's counts out over ops, and prices them in a slower tier.
#include "plan/step/openings.h"

#include <algorithm>

namespace sentinel::plan {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

double us_per_byte(double bytes_per_s) { return bytes_per_s > 0 ? 1e6 / bytes_per_s : 0; }

}  // namespace

Openings::Openings(const Profile& profile, const std::vector<Storage>& storages)
    : counted_(!profile.accesses.empty()),
      apart_(profile.meta.read_write),
      page_bytes_(static_cast<double>(profile.meta.page_bytes)),
      of_op_(counted_ ? profile.ops.size() : 0) {
  std::vector<std::uint32_t> of(profile.tensors.size(), kNone);
  for (std::uint32_t i = 0; i < storages.size(); ++i) {
    of[storages[i].tensor.index()] = i;
    if (storages[i].carried) of[storages[i].carried->index()] = i;
    if (!counted_) size_.push_back(static_cast<double>(storages[i].bytes) / page_bytes_);
  }
  for (const AccessCount& a : profile.accesses)
    if (of[a.tensor.index()] != kNone)
      of_op_[a.op.index()].push_back(
          {of[a.tensor.index()], {static_cast<double>(a.reads), static_cast<double>(a.writes)}});
  for (auto& counts : of_op_) {
    std::ranges::sort(counts, {}, &Count::storage);
    std::size_t kept = 0;  // instances of one storage are added up
    for (const Count& c : counts) {
      if (kept == 0 || counts[kept - 1].storage != c.storage) {
        counts[kept++] = c;
        continue;
      }
      counts[kept - 1].pages.read += c.pages.read;
      counts[kept - 1].pages.written += c.pages.written;
    }
    counts.resize(kept);
  }
}

Openings::Pages Openings::of(OpId op, std::uint32_t storage, bool read, bool written) const {
  if (!counted_) return {read ? size_[storage] : 0, written ? size_[storage] : 0};
  const auto& counts = of_op_[op.index()];
  const auto at = std::ranges::lower_bound(counts, storage, {}, &Count::storage);
  if (at == counts.end() || at->storage != storage) return {};
  if (apart_) return at->pages;
  return written ? Pages{0, at->pages.sum()} : Pages{at->pages.sum(), 0};
}

double Openings::in_place_us(const Machine& machine, std::uint32_t tier, const Pages& pages) const {
  const TierSpec& slow = machine.tiers[tier];
  const TierSpec& fast = machine.tiers[0];
  const double latency = counted_ ? slow.latency_us - fast.latency_us : 0;
  const auto each = [&](double slow_bw, double fast_bw) {
    return std::max(0.0, latency + page_bytes_ * (us_per_byte(slow_bw) - us_per_byte(fast_bw)));
  };
  return pages.read * each(slow.read_bw, fast.read_bw) +
         pages.written * each(slow.write_bw, fast.write_bw);
}

}  // namespace sentinel::plan
