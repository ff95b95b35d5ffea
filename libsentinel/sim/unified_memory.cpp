// Serves faults in batches, evicts blocks, and fetches ahead as a pager asks.
#include "sim/unified_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel::sim {
namespace {

constexpr std::size_t kGroup = 4;  // blocks in one transfer, where several are known

// Sets the bits [first, last); how many were not set.
template <std::size_t N>
std::uint16_t set_bits(std::array<std::uint64_t, N>& mask, std::uint64_t first,
                       std::uint64_t last) {
  std::uint16_t fresh = 0;
  for (std::uint64_t word = first / 64; word * 64 < last; ++word) {
    const std::uint64_t low = std::max(first, word * 64) % 64;
    const std::uint64_t n = std::min(last, word * 64 + 64) - word * 64 - low;
    const std::uint64_t bits = (n == 64 ? ~0ull : (1ull << n) - 1) << low;
    fresh += static_cast<std::uint16_t>(std::popcount(bits & ~mask[word]));
    mask[word] |= bits;
  }
  return fresh;
}

}  // namespace

UnifiedMemory::UnifiedMemory(Commons& commons, Pager& pager, std::uint64_t fast_bytes)
    : commons_(commons),
      account_(commons.open_account()),
      pager_(pager),
      ahead_(commons.machine().tiers.size()),
      out_(commons.machine().tiers.size()) {
  if (fast_bytes < kBlockBytes)
    throw Error(fmt::format("{} of fast memory do not hold one block of unified memory, {}",
                            print_bytes(fast_bytes), print_bytes(kBlockBytes)));
}

// Visit(id, block, pages): the pages of the range in each block it overlaps.
template <class Visit>
void UnifiedMemory::for_blocks(const AddressRange& range, Visit visit) {
  const std::uint64_t first = range.begin / kPageBytes,
                      last = (range.begin + range.bytes + kPageBytes - 1) / kPageBytes;
  const std::uint64_t end = (last + kBlockPages - 1) / kBlockPages;
  if (end > blocks_.size()) blocks_.resize(std::max<std::size_t>(end, 2 * blocks_.size()));
  for (std::uint64_t i = first / kBlockPages; i < end; ++i) {
    const std::uint64_t base = i * kBlockPages;
    visit(BlockId(i), blocks_[i], std::max(first, base) - base,
          std::min(last, base + kBlockPages) - base);
  }
}

void UnifiedMemory::hand_out(const AddressRange& range) {
  for_blocks(range, [](BlockId, UnifiedBlock& b, auto, auto) { ++b.active; });
}

void UnifiedMemory::take_back(const AddressRange& range) {
  for_blocks(range, [](BlockId, UnifiedBlock& b, auto, auto) { --b.active; });
}

bool UnifiedMemory::present(BlockId id) const {
  const UnifiedBlock& b = block(id);
  return b.held == b.touched && b.state != State::leaving &&
         (b.state != State::absent || b.touched == 0);
}

void UnifiedMemory::touch(const AddressRange& range) {
  for_blocks(range, [&](BlockId id, UnifiedBlock& b, std::uint64_t first, std::uint64_t last) {
    pager_.touched(id);
    b.tensor = range.tensor;
    if (b.touched < kBlockPages) b.touched += set_bits(b.mask, first, last);
    if (b.needed || complete(b)) return;
    b.needed = true;
    ++needed_;
    const bool comes = b.state == State::arriving && b.held == b.touched;
    if (!comes && !pager_.expected(id)) return fault(id, last - first);
    ++counts_.paging.late_blocks;
    if (!comes) faults_.push_back({id, 0});
  });
}

void UnifiedMemory::fault(BlockId id, std::uint64_t pages) {
  const std::uint64_t batch = std::max(commons_.machine().fault_batch_bytes, kPageBytes);
  const std::uint64_t bytes = pages * kPageBytes;
  std::uint64_t batches = 0;
  if (bytes > batch_left_) batches = (bytes - batch_left_ + batch - 1) / batch;
  batch_left_ = batch_left_ + batches * batch - bytes;
  counts_.demand_faults += batches;
  ++counts_.paging.faulted_blocks;
  faults_.push_back({id, static_cast<double>(batches) * commons_.machine().fault_us});
  pager_.faulted(id);
  commands_.clear();
}

// One transfer right behind another hides its latency.
double UnifiedMemory::latency_us(std::uint32_t tier, const Lane& lane) const {
  if (tier == 0 || lane.free_since_us == commons_.now_us()) return 0;
  return commons_.machine().tiers[tier].latency_us;
}

// What leaves counts as room that is to come. True if there is room now.
bool UnifiedMemory::make_room(std::uint64_t bytes, bool pressing) {
  while (bytes > leaving_bytes_ && !commons_.room(bytes - leaving_bytes_)) {
    const auto victim = pager_.victim(pressing);
    if (!victim) break;
    evict(*victim);
  }
  start_writes();
  return commons_.room(bytes);
}

void UnifiedMemory::evict(BlockId id) {
  UnifiedBlock& b = block(id);
  if (pager_.invalidates() && b.active == 0) {
    commons_.give(account_, b.held * kPageBytes);
    b.held = 0;
    b.state = State::absent;
    ++counts_.paging.invalidated_blocks;
    return;
  }
  ++counts_.evictions;
  b.state = State::leaving;
  b.stored = b.held;
  b.tier = static_cast<std::uint8_t>(commons_.tier_with_room(1, b.stored * kPageBytes));
  commons_.store(b.tier, b.stored * kPageBytes);
  leaving_bytes_ += b.held * kPageBytes;
  out_[b.tier].queue.push_back(id);
}

void UnifiedMemory::start_writes() {
  for (std::uint32_t tier = 1; tier < out_.size(); ++tier) {
    Lane& lane = out_[tier];
    if (lane.busy || lane.queue.empty()) continue;
    const auto cut =
        lane.queue.begin() + static_cast<std::ptrdiff_t>(std::min(kGroup, lane.queue.size()));
    std::vector<BlockId> group(lane.queue.begin(), cut);
    lane.queue.erase(lane.queue.begin(), cut);
    std::uint64_t bytes = 0;
    for (BlockId b : group) bytes += block(b).held * kPageBytes;
    lane.busy = true;
    const TensorId tensor = block(group.front()).tensor;
    commons_.start(account_, 0, tier, bytes, latency_us(tier, lane), tensor,
                   [this, tier, group = std::move(group)] { written(tier, group); });
  }
}

void UnifiedMemory::written(std::uint32_t tier, const std::vector<BlockId>& group) {
  out_[tier].busy = false;
  out_[tier].free_since_us = commons_.now_us();
  for (BlockId id : group) {
    UnifiedBlock& b = block(id);
    leaving_bytes_ -= b.held * kPageBytes;
    commons_.give(account_, b.held * kPageBytes);
    b.held = 0;
    b.state = State::absent;
  }
}

// How many faults from the first on can be served together: they come from the same tier.
std::size_t UnifiedMemory::group() const {
  const auto waits = [&](const Fault& f) {
    const State state = block(f.block).state;
    return state == State::arriving || state == State::leaving;
  };
  std::size_t n = 0;
  while (n < std::min(kGroup, faults_.size()) && !waits(faults_[n]) &&
         block(faults_[n].block).tier == block(faults_.front().block).tier)
    ++n;
  return n;
}

void UnifiedMemory::serve_faults() {
  while (!demand_.busy && !faults_.empty()) {
    std::size_t n = group();
    const auto need = [&] {
      std::uint64_t bytes = 0;
      for (std::size_t i = 0; i < n; ++i) bytes += missing_bytes(block(faults_[i].block));
      return bytes;
    };
    if (n == 0) return;
    if (!make_room(need(), true)) {
      if (!commons_.idle()) return;  // room is to come
      n = 1;
      if (!make_room(need(), true)) return;
    }
    double handling_us = 0;
    std::vector<BlockId> blocks;
    for (std::size_t i = 0; i < n; ++i) {
      handling_us += faults_[i].handling_us;
      blocks.push_back(faults_[i].block);
    }
    faults_.erase(faults_.begin(), faults_.begin() + static_cast<std::ptrdiff_t>(n));
    bring(blocks, handling_us, demand_);
  }
}

// Commands are started in their order as far as lanes are free; what finds no room holds up all
// that is behind it.
void UnifiedMemory::fetch_ahead() {
  if (demand_.busy || !faults_.empty()) return;
  while (commands_.size() < kPagerCommands) {
    const auto next = pager_.prefetch(*this);
    if (!next) break;
    commands_.push_back(*next);
  }
  std::size_t kept = 0, i = 0;
  for (; i < commands_.size(); ++i) {
    const BlockId id = commands_[i];
    const UnifiedBlock& b = block(id);
    if (present(id)) continue;
    Lane& lane = ahead_[b.tier];
    if (b.state == State::leaving || b.state == State::arriving || lane.busy) {
      commands_[kept++] = id;
      continue;
    }
    if (!make_room(missing_bytes(b), !pager_.pre_evicts())) break;
    bring({id}, 0, lane);
  }
  commands_.erase(commands_.begin() + static_cast<std::ptrdiff_t>(kept),
                  commands_.begin() + static_cast<std::ptrdiff_t>(i));
}

// There is room for them; all are absent in the same tier, or lack pages that are new.
void UnifiedMemory::bring(const std::vector<BlockId>& ids, double delay_us, Lane& lane) {
  std::uint64_t bytes = 0;
  const std::uint32_t tier = block(ids.front()).tier;
  for (BlockId id : ids) {
    UnifiedBlock& b = block(id);
    if (b.state == State::resident) pager_.left(id);  // not a victim meanwhile
    commons_.take(account_, missing_bytes(b));
    b.held = b.touched;
    b.state = State::arriving;
    bytes += b.stored * kPageBytes;
  }
  const double latency = &lane == &demand_ && tier != 0 ? commons_.machine().tiers[tier].latency_us
                                                        : latency_us(tier, lane);
  if (bytes == 0 && delay_us == 0) return arrived(ids, lane);
  lane.busy = true;
  commons_.start(account_, std::max(tier, 1u), 0, bytes, delay_us + latency,
                 block(ids.front()).tensor, [this, ids, &lane] { arrived(ids, lane); });
}

void UnifiedMemory::arrived(const std::vector<BlockId>& ids, Lane& lane) {
  lane.busy = false;
  lane.free_since_us = commons_.now_us();
  for (BlockId id : ids) {
    UnifiedBlock& b = block(id);
    if (b.tier != 0) commons_.unstore(b.tier, b.stored * kPageBytes);
    b.tier = 0;
    b.stored = 0;
    b.state = State::resident;
    pager_.arrived(id);
    if (!b.needed) continue;
    if (b.held < b.touched) {  // touched on the way
      faults_.push_front({id, 0});
      continue;
    }
    b.needed = false;
    --needed_;
  }
}

void UnifiedMemory::settle() {
  serve_faults();
  fetch_ahead();
  if (pager_.pre_evicts()) make_room(kPagerFreeBlocks * kBlockBytes, false);
  start_writes();
}

UnifiedMemory::Counts UnifiedMemory::take_counts() {
  counts_.paging.table_bytes = pager_.table_bytes();
  counts_.paging.conflict_misses = pager_.conflict_misses() - conflicts_;
  conflicts_ = pager_.conflict_misses();
  return std::exchange(counts_, {});
}

}  // namespace sentinel::sim
