// Places tensors on pages as the framework would, and compares counts by page with those by
// tensor.
#include "report/view/sharing.h"

#include <algorithm>
#include <span>

namespace sentinel {
namespace {

struct Resident {
  std::uint64_t page = 0;
  TensorId tensor;
  std::uint64_t bytes = 0;  // of the tensor on this page
};

std::size_t band_index(double hotness) { return static_cast<std::size_t>(heat_band(hotness)); }

void add_residents(const StepView& step, const NaturalPlacement& at, std::vector<Resident>& out) {
  const auto end = at.address + step.profile.tensors[at.tensor.index()].bytes;
  for (auto begin = at.address; begin < end;) {
    const auto page = begin / step.page();
    const auto stop = std::min(end, (page + 1) * step.page());
    out.push_back({page, at.tensor, stop - begin});
    begin = stop;
  }
}

// By page, and on a page by first use.
std::vector<Resident> residents_of(const StepView& step) {
  std::vector<Resident> residents;
  for (const auto& at : step.profile.natural)
    if (!step.profile.tensors[at.tensor.index()].foreign) add_residents(step, at, residents);
  std::ranges::sort(residents, {}, [&](const Resident& r) {
    return std::tuple(r.page, step.lifetimes[r.tensor.index()].first_op, r.tensor);
  });
  return residents;
}

// Whether a tensor of more than 10 openings a page is alive during `life`. `warm` holds, for those
// of one page by first use, the first op of each and the latest last op up to it.
using Warm = std::vector<std::pair<OpId, OpId>>;

bool beside_warm(const Warm& warm, const Lifetime& life) {
  const auto later = std::ranges::upper_bound(warm, life.last_op, {}, &Warm::value_type::first);
  return later != warm.begin() && std::prev(later)->second >= life.first_op;
}

struct ColdBytes {
  std::uint64_t all = 0, at_once = 0;
};

// Of the tensors on one page, those opened at most 10 times a page.
ColdBytes cold_bytes(const StepView& step, std::span<const Resident> page) {
  Warm warm;
  for (const auto& r : page) {
    const auto& life = step.lifetimes[r.tensor.index()];
    if (step.counts[r.tensor.index()].hotness > 10)
      warm.emplace_back(life.first_op,
                        warm.empty() ? life.last_op : std::max(warm.back().second, life.last_op));
  }
  ColdBytes sum;
  for (const auto& r : page) {
    if (step.counts[r.tensor.index()].hotness > 10) continue;
    sum.all += r.bytes;
    if (beside_warm(warm, step.lifetimes[r.tensor.index()])) sum.at_once += r.bytes;
  }
  return sum;
}

void add_page(const StepView& step, std::span<const Resident> page, Sharing& sharing) {
  double openings = 0;
  for (const auto& r : page) openings += step.counts[r.tensor.index()].hotness;
  sharing.page_bytes[band_index(openings)] += step.page();
  sharing.placed_pages += 1;
  if (page.size() < 2) return;
  sharing.shared_pages += 1;
  const auto cold = openings > 10 ? cold_bytes(step, page) : ColdBytes{};
  sharing.falsely_shared_bytes += cold.all;
  sharing.falsely_shared_at_once_bytes += cold.at_once;
  auto& shared = sharing.pages.emplace_back();
  shared.page = page.front().page;
  shared.openings = openings;
  shared.falsely_shared_bytes = cold.all;
  for (const auto& r : page) shared.tensors.push_back(r.tensor);
}

// Tensors without a natural address lie alone on their pages.
void add_unplaced(const StepView& step, Sharing& sharing) {
  std::vector<bool> placed(step.profile.tensors.size());
  for (const auto& at : step.profile.natural) placed[at.tensor.index()] = true;
  for (std::size_t t = 0; t < placed.size(); ++t) {
    const auto& tensor = step.profile.tensors[t];
    if (tensor.foreign) continue;
    const auto band = band_index(step.counts[t].hotness);
    sharing.tensor_bytes[band] += tensor.bytes;
    if (!placed[t]) sharing.page_bytes[band] += page_round(tensor.bytes, step.page());
  }
}

// Nothing is listed page by page beyond this: a file may say that a tensor is of any size.
constexpr std::uint64_t kMostResidents = std::uint64_t{1} << 26;

bool too_many_pages(const StepView& step) {
  std::uint64_t residents = 0;  // each tensor's pages fit 48 bits, and there are at most 2^26
  for (const auto& at : step.profile.natural)
    if (!step.profile.tensors[at.tensor.index()].foreign) residents += step.pages(at.tensor) + 1;
  return residents > kMostResidents;
}

}  // namespace

Sharing sharing_of(const StepView& step) {
  Sharing sharing;
  if (step.profile.natural.empty()) {
    sharing.absent_reason =
        "the profile does not say where the framework itself would have placed its tensors";
    return sharing;
  }
  if (!step.counted) {
    sharing.absent_reason = "memory accesses were not counted";
    return sharing;
  }
  if (too_many_pages(step)) {
    sharing.absent_reason = "the tensors lie on more pages than can be looked at one by one";
    return sharing;
  }
  add_unplaced(step, sharing);
  const auto residents = residents_of(step);
  for (std::size_t i = 0; i < residents.size();) {
    auto end = i;
    while (end < residents.size() && residents[end].page == residents[i].page) ++end;
    add_page(step, std::span(residents).subspan(i, end - i), sharing);
    i = end;
  }
  std::ranges::stable_sort(sharing.pages, std::greater{}, &SharedPage::falsely_shared_bytes);
  return sharing;
}

}  // namespace sentinel
