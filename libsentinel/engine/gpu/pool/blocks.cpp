// Moves blocks between states, and between the orders of use and of death.
#include "engine/gpu/pool/blocks.h"

#include <algorithm>

#include "base/units.h"

namespace sentinel::gpu::pool {

Blocks::Blocks(std::uint64_t granule, std::uint64_t bytes, const std::atomic<std::uint64_t>& clock)
    : granule_(granule),
      clock_(clock),
      blocks_(round_up(bytes, granule) / granule),
      pager_(blocks_) {}

std::pair<Index, Index> Blocks::of(std::uintptr_t address, std::uint64_t bytes) const {
  if (bytes == 0) return {0, 0};
  const auto begin = address - arena_;
  return {static_cast<Index>(begin / granule_),
          static_cast<Index>((begin + bytes - 1) / granule_ + 1)};
}

std::vector<std::uintptr_t> Blocks::mapped() const {
  std::vector<std::uintptr_t> mapped;
  for (Index i = 0; i < size(); ++i)
    if (has_memory(i)) mapped.push_back(at(i));
  return mapped;
}

void Blocks::page(std::unique_ptr<Pager> pager) {
  pager_.take(std::move(pager));
  for (const Index index : by_use_) pager_.came(index);
}

void Blocks::enter(Index index) {
  ChunkBlock& b = blocks_[index];
  b.state = State::resident;
  b.place = by_use_.insert(by_use_.end(), index);
  pager_.came(index);
}

void Blocks::leave(Index index) {
  ChunkBlock& b = blocks_[index];
  (b.dead ? dead_beside(b) : by_use_).erase(b.place);
  b.dead = false;
  pager_.went(index);
}

void Blocks::use(Index index) {
  ChunkBlock& b = blocks_[index];
  b.used = now();
  if (b.state == State::resident && b.live > 0) by_use_.splice(by_use_.end(), by_use_, b.place);
}

void Blocks::die(Index index) {
  ChunkBlock& b = blocks_[index];
  b.dead = true;
  dead_beside(b).splice(dead_beside(b).end(), by_use_, b.place);
}

void Blocks::revive(Index index) {
  ChunkBlock& b = blocks_[index];
  by_use_.splice(by_use_.end(), dead_beside(b), b.place);
  pager_.came(index);
}

void Blocks::pin(Index index) {
  if (blocks_[index].pins++ == 0) pager_.went(index);
}

void Blocks::unpin(Index index) {
  if (--blocks_[index].pins == 0) pager_.came(index);
}

void Blocks::change_pools(Index index, int change) {
  ChunkBlock& b = blocks_[index];
  auto& before = dead_beside(b);
  b.pools += static_cast<std::uint32_t>(change);
  auto& after = dead_beside(b);
  if (b.dead && &before != &after) after.splice(after.end(), before, b.place);
}

bool Blocks::any_may_go() { return longest_unused() != by_use_.end(); }

Blocks::Order::iterator Blocks::longest_unused() {
  return std::ranges::find_if(by_use_, [&](Index index) { return may_go(blocks_[index]); });
}

std::optional<Index> Blocks::choose_victim() {
  if (pager_.taken())
    if (const auto victim = paged_victim(true)) return victim;
  auto victim = std::ranges::find_if(
      by_use_, [&](Index index) { return may_go(blocks_[index]) && blocks_[index].wanted == 0; });
  if (victim == by_use_.end()) victim = longest_unused();
  return victim == by_use_.end() ? std::nullopt : std::optional(*victim);
}

std::optional<Index> Blocks::paged_victim(bool pressing) {
  return pager_.victim(pressing, [this](const ChunkBlock& b) { return may_go(b); });
}

}  // namespace sentinel::gpu::pool
