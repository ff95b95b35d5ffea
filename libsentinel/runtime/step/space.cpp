// Places tensors by plan or by best fit, and keeps freed ranges with memory for the next.
#include "runtime/step/space.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096;

// Live tensors below a page that have one of their own: 16 MiB of pages, and a sixteenth of the
// budget. A model with tens of thousands of them would otherwise need a hundred times the memory of
// its contents; and what is made before there is a plan keeps its page under the plan.
constexpr std::uint64_t kMostSmallPages = 4096;
constexpr std::uint64_t kSmallPagesOfBudget = 16;

std::size_t most_small_pages(std::uint64_t budget) {
  return budget == 0 ? kMostSmallPages
                     : std::min(kMostSmallPages, budget / kSmallPagesOfBudget / kPage);
}

bool has_small_page(const LiveTensor& tensor) {
  return tensor.bytes < kPage && tensor.reserved == kPage;
}

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

Space::Space(Engine& engine, std::uint64_t budget)
    : engine_(engine),
      heap_(engine.arena(), engine.arena_bytes()),
      late_heap_(heap_, engine.granule()),
      most_small_pages_(most_small_pages(budget)) {}

std::uint32_t Space::add_plan(std::vector<PlannedSlot> slots, std::uint64_t region_bytes,
                              bool moves) {
  Planned planned;
  planned.moves = moves;
  for (auto& slot : slots)  // of a profile that was recorded elsewhere
    slot.placed = slot.placed && slot.offset % engine_.alignment() == 0;
  planned.used.assign(slots.size(), false);
  planned.slots = std::move(slots);
  planned.cut();
  planned.join_pools();
  const auto granule = engine_.granule();
  planned.region = heap_.allocate(std::max(region_bytes, granule), granule);
  if (planned.region == 0) throw Error("no addresses are left for the plan; raise SENTINEL_ARENA");
  planned.float_alone(granule);
  plans_.push_back(std::move(planned));
  return static_cast<std::uint32_t>(plans_.size() - 1);
}

void Space::activate(std::uint32_t plan) {
  if (plan == active_) return;
  if (auto* device = engine_.device()) {
    // First, or a waiting prefetch takes of its memory when the other's is let go.
    for (const auto& [offset, bytes] : plans_[plan].pools)
      device->hold_pool(plans_[plan].region + offset, bytes);
    if (active_ != LiveTensor::kUnplanned)
      for (const auto& [offset, bytes] : plans_[active_].pools)
        device->let_pool_go(plans_[active_].region + offset, bytes);
  }
  active_ = plan;
}

void Space::Planned::join_pools() {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
  for (const auto& slot : slots)
    if (slot.reserved) parts.emplace_back(slot.offset, slot.bytes);
  std::ranges::sort(parts);
  for (const auto& [offset, bytes] : parts) {
    const auto past = pools.empty() ? 0 : pools.back().first + pools.back().second;
    if (pools.empty() || offset > past)
      pools.emplace_back(offset, bytes);
    else
      pools.back().second = std::max(past, offset + bytes) - pools.back().first;
  }
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

// Slots that share no granule with another one.
void Space::Planned::float_alone(std::uint64_t granule) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t s = 0; s < slots.size(); ++s) {
    address.push_back(slots[s].placed ? region + slots[s].offset : 0);
    if (slots[s].placed) order.push_back(s);
  }
  ranges_of.assign(slots.size(), kFixed);
  std::ranges::sort(order, {}, [&](auto s) { return slots[s].offset; });
  const auto first = [&](auto s) { return slots[s].offset / granule; };
  const auto past = [&](auto s) {
    return round_up(slots[s].offset + slots[s].bytes, granule) / granule;
  };
  std::map<std::uint64_t, std::uint32_t> by_size;
  std::uint64_t taken = 0;  // granules before this one are others'
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto s = order[i];
    const bool alone = first(s) >= taken && slots[s].offset % granule == 0 && !slots[s].shared &&
                       (i + 1 == order.size() || first(order[i + 1]) >= past(s));
    taken = std::max(taken, past(s));
    if (!alone) continue;
    const auto size = by_size.try_emplace(past(s) - first(s), by_size.size()).first->second;
    ranges.resize(by_size.size());
    ranges[ranges_of[s] = size].push_front(std::exchange(address[s], 0));
  }
}

// False: the placement, or an overlapping one of the shared part, is in use, or too small.
bool Space::Planned::claim(std::uint32_t index, std::uint64_t bytes) {
  if (!slots[index].placed || used[index] || bytes > slots[index].bytes) return false;
  const auto [first, last] = cells[index];
  if (!for_words(first, last,
                 [&](auto word, auto mask) { return (cells_in_use[word] & mask) == 0; }))
    return false;
  for_words(first, last, [&](auto word, auto mask) { return cells_in_use[word] |= mask, true; });
  if (ranges_of[index] != kFixed) {  // as many ranges as slots: one is free
    auto& free = ranges[ranges_of[index]];
    address[index] = free.back();
    free.pop_back();
  }
  return used[index] = true;
}

void Space::Planned::unclaim(std::uint32_t index, bool memory) {
  used[index] = false;
  if (ranges_of[index] != kFixed) {
    auto& free = ranges[ranges_of[index]];
    const auto range = std::exchange(address[index], 0);
    memory ? free.push_back(range) : free.push_front(range);
  }
  const auto [first, last] = cells[index];
  for_words(first, last, [&](auto word, auto mask) { return cells_in_use[word] &= ~mask, true; });
}

bool Space::Planned::lend(std::uint32_t index, std::uintptr_t elsewhere) {
  if (!slots[index].placed || used[index]) return false;
  address[index] = elsewhere;
  return used[index] = true;
}

void Space::Planned::take_back(std::uint32_t index) {
  used[index] = false;
  address[index] = ranges_of[index] == kFixed ? region + slots[index].offset : 0;
}

// Where tensors move by plan, one that fills its granules has them to itself, and others share
// theirs only with each other. Where no whole granule is left, they take what there is.
void Space::lay_in_heap(LiveTensor& tensor, bool own_pages) {
  const auto bytes = tensor.bytes, granule = engine_.granule();
  auto alignment = std::max(natural_alignment(bytes, granule), engine_.alignment());
  own_pages = own_pages && (bytes >= kPage || small_pages_ < most_small_pages_);
  if (own_pages) alignment = std::max(kPage, alignment);
  tensor.reserved = own_pages ? round_up(bytes, kPage) : bytes;
  const bool late = active_ != LiveTensor::kUnplanned && plans_[active_].moves,
             fills = alignment >= granule;
  if (late && fills) tensor.reserved = round_up(bytes, granule);
  if (late && !fills) tensor.address = late_heap_.allocate(tensor.reserved, alignment);
  tensor.late = tensor.address != 0;
  if (!tensor.late) tensor.address = heap_.allocate(tensor.reserved, alignment);
}

LiveTensor* Space::allocate(std::uint64_t bytes, std::uint32_t slot, bool own_pages) {
  LiveTensor tensor{.bytes = bytes, .birth = births_++};
  out_of_addresses_ = false;
  if (slot != LiveTensor::kUnplanned && plans_[active_].claim(slot, bytes)) {
    tensor.plan = active_;
    tensor.slot = slot;
    tensor.address = address_of(active_, slot);
  } else {
    lay_in_heap(tensor, own_pages);
    if ((out_of_addresses_ = tensor.address == 0)) return nullptr;
    small_pages_ += has_small_page(tensor) ? 1 : 0;
    const bool too_large =
        slot != LiveTensor::kUnplanned && bytes > plans_[active_].slots[slot].bytes;
    if (too_large && plans_[active_].lend(slot, tensor.address)) {
      tensor.plan = active_;
      tensor.slot = slot;
    }
  }
  tensor.wanted = engine_.on_allocate(tensor.address, bytes);
  if (!tensor.wanted && !engine_.guarded()) return give_back(tensor, false), nullptr;
  if (tensor.in_its_place() && plans_[active_].slots[slot].brief)
    engine_.transient(tensor.address, bytes);
  live_bytes_ += bytes;
  most_live_bytes_ = std::max(most_live_bytes_, live_bytes_);
  return &table_.insert(tensor);
}

void Space::hand_over(std::uint32_t plan, std::uint32_t from, std::uint32_t to) {
  auto& planned = plans_[plan];
  const bool alike =
      planned.ranges_of[from] != kFixed && planned.ranges_of[from] == planned.ranges_of[to];
  if (!alike || !planned.used[from] || planned.used[to]) return;
  planned.address[to] = std::exchange(planned.address[from], 0);
  planned.used[from] = false;
  planned.used[to] = true;
  table_.find(planned.address[to])->slot = to;
}

// `memory`: its granules are left with fast memory.
void Space::give_back(const LiveTensor& tensor, bool memory) {
  small_pages_ -= has_small_page(tensor) ? 1 : 0;
  if (tensor.in_its_place()) return plans_[tensor.plan].unclaim(tensor.slot, memory);
  tensor.late ? late_heap_.free(tensor.address, tensor.reserved)
              : heap_.free(tensor.address, tensor.reserved);
  if (tensor.slot != LiveTensor::kUnplanned) plans_[tensor.plan].take_back(tensor.slot);
}

LiveTensor Space::release(std::uintptr_t address) {
  const auto tensor = *table_.find(address);
  const bool memory = engine_.on_free(address, tensor.bytes, tensor.wanted);
  table_.erase(address);
  live_bytes_ -= tensor.bytes;
  give_back(tensor, memory);
  return tensor;
}

}  // namespace sentinel
