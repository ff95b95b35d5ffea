#include "execute/space.h"

#include <algorithm>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096;

// Calls f(word, mask) for the bits [first, last) of a bit field; stops when f returns false.
template <class F>
bool for_words(std::uint64_t first, std::uint64_t last, F&& f) {
  while (first < last) {
    const auto bit = first % 64, count = std::min<std::uint64_t>(64 - bit, last - first);
    const auto mask = (count == 64 ? ~0ull : (1ull << count) - 1) << bit;
    if (!f(first / 64, mask)) return false;
    first += count;
  }
  return true;
}

}  // namespace

Space::Space(Engine& engine) : engine_(engine), heap_(engine.arena(), engine.arena_bytes()) {}

std::uint32_t Space::add_plan(std::vector<PlannedSlot> slots, std::uint64_t region_bytes) {
  Planned planned;
  planned.used.assign(slots.size(), false);
  planned.slots = std::move(slots);
  planned.cut();
  const auto granule = engine_.granule();
  planned.region = heap_.allocate(std::max(region_bytes, granule), granule);
  if (planned.region == 0) throw Error("no addresses are left for the plan; raise SENTINEL_ARENA");
  plans_.push_back(std::move(planned));
  return static_cast<std::uint32_t>(plans_.size() - 1);
}

void Space::Planned::cut() {
  std::vector<std::uint64_t> edges;
  for (const auto& slot : slots)
    if (slot.shared) edges.insert(edges.end(), {slot.offset, slot.offset + slot.bytes});
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  const auto cell = [&](std::uint64_t offset) {
    return static_cast<std::uint32_t>(std::lower_bound(edges.begin(), edges.end(), offset) -
                                      edges.begin());
  };
  for (const auto& slot : slots)
    cells.push_back(slot.shared ? std::pair{cell(slot.offset), cell(slot.offset + slot.bytes)}
                                : std::pair{0u, 0u});
  cells_in_use.assign(edges.size() / 64 + 1, 0);
}

// False: the placement, or an overlapping one of the shared part, is in use.
bool Space::Planned::claim(std::uint32_t index) {
  if (!slots[index].placed || used[index]) return false;
  const auto [first, last] = cells[index];
  if (!for_words(first, last,
                 [&](auto word, auto mask) { return (cells_in_use[word] & mask) == 0; }))
    return false;
  for_words(first, last, [&](auto word, auto mask) { return cells_in_use[word] |= mask, true; });
  return used[index] = true;
}

void Space::Planned::unclaim(std::uint32_t index) {
  used[index] = false;
  const auto [first, last] = cells[index];
  for_words(first, last, [&](auto word, auto mask) { return cells_in_use[word] &= ~mask, true; });
}

LiveTensor* Space::allocate(std::uint64_t bytes, std::uint32_t slot, bool own_pages) {
  LiveTensor tensor{.bytes = bytes, .birth = births_++};
  if (slot != LiveTensor::kUnplanned && plans_[active_].claim(slot)) {
    tensor.plan = active_;
    tensor.slot = slot;
    tensor.address = address_of(active_, slot);
  } else {
    const auto alignment = natural_alignment(bytes, engine_.granule());
    tensor.reserved = own_pages ? round_up(bytes, kPage) : bytes;
    tensor.address =
        heap_.allocate(tensor.reserved, own_pages ? std::max(kPage, alignment) : alignment);
    if (tensor.address == 0) return nullptr;
  }
  tensor.wanted = engine_.occupy(tensor.address, bytes);
  return &table_.insert(tensor);
}

LiveTensor Space::release(std::uintptr_t address) {
  const auto tensor = *table_.find(address);
  engine_.vacate(address, tensor.bytes, tensor.wanted);
  table_.erase(address);
  if (tensor.reserved != 0)
    heap_.free(address, tensor.reserved);
  else
    plans_[tensor.plan].unclaim(tensor.slot);
  return tensor;
}

}  // namespace sentinel
