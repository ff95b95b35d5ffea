// Ranks resident blocks by use, and queues as many for eviction as frames are wanted.
#include "engine/ssd/frame_victims.h"

#include <algorithm>

namespace sentinel {
namespace {

constexpr std::uint64_t kAheadShare = 16;  // of the budget kept free for a streaming op: a 16th
constexpr std::size_t kFew = 4;            // frames ahead for which what is due may leave
constexpr std::uint32_t kOldestIn = 3;     // of the looped victims one in so many is the oldest

}  // namespace

// What no plan wants, then what the op that runs does not use, the longest unused first. Of the
// op's own blocks each has to leave once, in the order in which they came: most ops are done with
// them. What is needed again afterwards is gone over again and again, and the oldest is just what
// is needed next: of these the last to come leaves, so that the others stay. So does, in an op that
// strides, what it makes: it is written in every sweep. But a loop may move on. What it has left
// behind would stay, and the few that come and go would be those in use: one victim in three is the
// oldest. Where the op's order is known, the block that is due last leaves before those, as Belady
// has it, and what is due soon behind them. Behind all these leaves what the op makes for itself:
// it dies without being written. What has just come is spared: two threads would else take each
// other's block away for ever.
std::pair<FrameVictims::Rank, std::uint64_t> FrameVictims::rank(
    const FrameBlock& block) const noexcept {
  const auto now = use_.op();
  if (block.stuck) return {Rank::stuck, block.used};
  if (FrameUse::op_of(block) < now)
    return {block.wanted == 0 ? Rank::unwanted : Rank::unused, block.used};
  if (use_.fresh(block)) return {Rank::fresh, block.used};
  if (block.brief) return {Rank::brief, block.left == now ? ~block.used : block.used};
  if (order_.knows() && order_.due(block) != StreamOrder::kNever)
    return {order_.is_soon(block) ? Rank::soon : Rank::due, ~std::uint64_t{order_.due(block)}};
  const auto in_turn = looped_ % kOldestIn == kOldestIn - 1 ? block.used : ~block.used;
  const bool kept = block.made && budget_.pieces() && budget_.pieces()->strides(now);
  if (block.left == now || kept) return {Rank::looped, in_turn};
  return {Rank::used, block.used};
}

void FrameVictims::want_frames(std::size_t count, Rank last) noexcept {
  const auto under_way = blocks_.under_way();
  if (under_way >= count || blocks_.frozen()) return;
  const auto needed = std::min(count - under_way, blocks_.resident().size());
  const auto now = use_.op();
  for (std::size_t n = 0; n < needed; ++n) {
    auto best = blocks_.dead().empty() ? blocks_.spare().front() : blocks_.dead().front();
    if (best != kNoBlock) {
      evict(best);
      continue;
    }
    for (const auto index : blocks_.resident())
      if (blocks_[index].queue == QueueId::none &&
          (best == kNoBlock || rank(blocks_[index]) < rank(blocks_[best])))
        best = index;
    if (best == kNoBlock || rank(blocks_[best]).first > last) return;
    if (last == Rank::due && rank(blocks_[best]).first == Rank::due &&
        order_.due(blocks_[best]) <= order_.reached())
      return;
    if (rank(blocks_[best]).first == Rank::looped) ++looped_;
    if (FrameUse::op_of(blocks_[best]) == now) {
      blocks_[best].left = now;
      use_.gives_up(now);
    }
    evict(best);
  }
}

std::size_t FrameVictims::demanded() const noexcept {
  return std::min(blocks_.demanded().size(), transfers_.depth());
}

std::size_t FrameVictims::room_ahead() const noexcept {
  return use_.streams() ? std::min<std::size_t>(transfers_.depth(), budget_.limit() / kAheadShare)
                        : 0;
}

void FrameVictims::make_room_ahead() noexcept {
  const bool knows = order_.knows();
  const auto reads = knows ? std::min(blocks_.ahead().size(), transfers_.depth()) : 0;
  const auto ahead = room_ahead() + reads;
  const auto not_made = budget_.limit() - std::min(budget_.limit(), budget_.frames());
  const auto room = budget_.free() + std::min<std::uint64_t>(not_made, ahead);
  if (room < ahead)
    want_frames(demanded() + ahead - room, !knows                         ? Rank::looped
                                           : order_.outstanding() <= kFew ? Rank::due
                                                                          : Rank::used);
}

void FrameVictims::reclaim() noexcept {
  auto n = blocks_.under_way();
  const auto waiting = blocks_.ahead().size() + blocks_.prefetches().size();
  for (; n < waiting && !blocks_.dead().empty(); ++n) evict(blocks_.dead().front());
  const auto most = std::min(waiting, transfers_.depth());
  for (; n < most && !blocks_.spare().empty(); ++n) evict(blocks_.spare().front());
  const auto now = use_.op();
  for (std::size_t i = 0; n < most && i < blocks_.resident().size(); ++i) {
    const auto& block = blocks_[blocks_.resident()[i]];
    if (block.queue != QueueId::none || block.wanted != 0 || block.stuck) continue;
    if (FrameUse::op_of(block) >= now) continue;
    evict(blocks_.resident()[i]);
    ++n;
  }
}

void FrameVictims::evict(BlockIndex index) noexcept {
  blocks_.no_longer_idle(index);
  if (blocks_[index].queue != QueueId::none) return;
  blocks_.evictions().push(index);
  transfers_.wake_writer();
}

void FrameVictims::keep(BlockIndex index) noexcept {
  blocks_.evictions().remove(index);
  look_again();
}

void FrameVictims::look_again() noexcept {
  if (!blocks_.demanded().empty()) transfers_.wake_reader();
}

}  // namespace sentinel
