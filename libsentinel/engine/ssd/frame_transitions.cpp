// Carries out each arrow of the blocks' states.
#include "engine/ssd/frame_transitions.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/host/stop.h"

namespace sentinel {
namespace {

bool is_zero(const void* frame) noexcept {
  const auto* bytes = static_cast<const char*>(frame);
  return bytes[0] == 0 && std::memcmp(bytes, bytes + 1, kGranule - 1) == 0;
}

}  // namespace

void FrameTransitions::demand(BlockIndex index, bool later) noexcept {
  auto& block = blocks_[index];
  if (block.queue == QueueId::demand) {
    if (later || !block.later) return;
    blocks_.demanded().remove(index);
  }
  blocks_.read_no_more(index);
  block.later = later;
  blocks_.demanded().push(index);
  transfers_.wake_reader();
}

bool FrameTransitions::start_promotion(BlockIndex index, EngineLock& guard) noexcept {
  auto& block = blocks_[index];
  if (budget_.lacks_frame() && !blocks_.dead().empty()) {
    reuse_dead(guard);
    return true;  // the lock was dropped: look again
  }
  if (block.state == BlockState::empty) {
    auto& queue = block.queue == QueueId::demand ? blocks_.demanded() : blocks_.ahead();
    queue.remove(index);
    if (give(index, guard)) return true;
    queue.push(index);  // a frame that becomes free wakes the promoter; nothing else helps
    return false;
  }
  const auto token = budget_.get(guard, better_node(index));
  if (token == kNoToken) return false;
  if (block.state != BlockState::absent) {  // changed while a frame was made
    budget_.keep_free(token);
    return true;
  }
  if (block.queue == QueueId::demand) blocks_.demanded().remove(index);
  blocks_.read_no_more(index);
  if (auto* pieces = budget_.pieces()) pieces->drop(index);
  blocks_.set_arriving(index);
  block.token = token;
  if (block.slot == kZeros) {
    guard.unlock();
    std::memset(backings_->buffer(index, token), 0, kGranule);
    guard.lock();
    transfers_.release_slot(block);
    install(index, token, guard);
    return true;
  }
  transfers_.read(index, block.slot, backings_->buffer(index, token));
  return true;
}

bool FrameTransitions::give(BlockIndex index, EngineLock& guard, bool asked) noexcept {
  auto& block = blocks_[index];
  blocks_.set_arriving(index);
  if (asked && !block.faulted) use_.came();
  const auto token = budget_.get(guard, better_node(index));
  if (token != kNoToken) {
    install(index, token, guard);
    return true;
  }
  block.state = BlockState::empty;
  blocks_.has_arrived();
  return false;
}

// What a plan wants in fast memory is better off there.
FrameNode FrameTransitions::better_node(BlockIndex index) const noexcept {
  return blocks_[index].wanted != 0 ? FrameNode::fast : FrameNode::slow;
}

// The token may name another frame as soon as it is consumed.
void FrameTransitions::install(BlockIndex index, Token token, EngineLock& guard) noexcept {
  auto* nodes = budget_.nodes();
  const auto node = nodes ? nodes->of(token) : FrameNode::slow;
  guard.unlock();
  const int code = backings_->install(index, token);
  guard.lock();
  if (code != 0) transfers_.fail("could not put a frame in its place", -code);
  if (nodes) nodes->installed(index, node);
  blocks_.has_arrived();
  set_resident(index);
}

void FrameTransitions::set_resident(BlockIndex index) noexcept {
  auto& block = blocks_[index];
  block.token = kNoToken;
  block.recalled = false;
  const std::uint64_t now = use_.now();
  const bool in_use = block.used >= now;  // by the op that runs: it was read ahead for it
  block.made = block.made && in_use;
  use_.arrived(block, now);
  blocks_.set_resident(index);
  if (std::exchange(block.faulted, false))
    stalls_.end();
  else if (block.live != 0 && block.wanted == 0 && !block.stuck && !in_use)
    stay_or_leave(index);  // demoted on its way
  list(index);
  if (block.live == 0) {
    transfers_.release_slot(block);
    blocks_.note_dead(index);
    transfers_.feed();
  }
  // While counting, whoever was woken by the install has faulted again and was told to wait.
  if (counting_) arena_.wake(index);
  victims_.look_again();
  blocks_.changed();
}

void FrameTransitions::want(BlockIndex index) noexcept {
  auto* nodes = budget_.nodes();
  if (!nodes) return;
  nodes->sinks(index, false);
  if (blocks_[index].state != BlockState::resident) return;
  if (nodes->of_block(index) == FrameNode::slow) nodes->to_fast().push(index);
}

void FrameTransitions::want_all() noexcept {
  for (const auto index : blocks_.resident())
    if (blocks_[index].live != 0 && blocks_[index].wanted != 0) want(index);
}

// A block that has become resident in the node where no plan wants it. What begins there for lack
// of room stays.
void FrameTransitions::list(BlockIndex index) noexcept {
  auto* nodes = budget_.nodes();
  const auto& block = blocks_[index];
  if (!nodes || !nodes->on() || block.live == 0) return;
  const bool is_fast = nodes->of_block(index) == FrameNode::fast;
  if (block.wanted != 0 && !is_fast && !block.made) nodes->to_fast().push(index);
  if (block.wanted == 0 && is_fast && !nodes->sinks(index)) nodes->to_slow().push(index);
}

bool FrameTransitions::could_be_fast(BlockIndex index, EngineLock& guard) noexcept {
  auto* nodes = budget_.nodes();
  if (!nodes || blocks_.frozen() || blocks_[index].queue != QueueId::dead) return false;
  if (nodes->of_block(index) == FrameNode::fast) return false;
  return fast_at_hand(guard);
}

bool FrameTransitions::fast_at_hand(EngineLock& guard) noexcept {
  auto* nodes = budget_.nodes();
  if (!nodes || !nodes->on()) return false;
  const bool has_room = nodes->has_room(FrameNode::fast) && !budget_.is_full();
  return has_room || budget_.has_free_fast() || reuse_dead_of(FrameNode::fast, guard);
}

// A block that no plan wants in fast memory goes to the slow node, or to the file.
void FrameTransitions::stay_or_leave(BlockIndex index) noexcept {
  auto* nodes = budget_.nodes();
  if (!nodes || nodes->sinks(index)) return victims_.evict(index);
  if (nodes->of_block(index) == FrameNode::fast) nodes->to_slow().push(index);
}

void FrameTransitions::arrived(const Completion& completion, EngineLock& guard) noexcept {
  const auto index = static_cast<BlockIndex>(completion.cookie);
  auto& block = blocks_[index];
  if (completion.error != 0) transfers_.fail("could not read a tensor back", completion.error);
  transfers_.came_back(block);
  transfers_.promoted();
  install(index, block.token, guard);
}

// Makes a resident block inaccessible; false: it stays, and another has to be chosen. A write by
// the training threads from then on waits in its fault and recalls the block, so nothing is lost.
bool FrameTransitions::take(BlockIndex index, EngineLock& guard) noexcept {
  auto& block = blocks_[index];
  block.discard = block.live == 0;
  blocks_.set_leaving(index);
  guard.unlock();
  Token token = kNoToken;
  const int code = backings_->take(index, token);
  guard.lock();
  block.token = token;
  block.stuck = code != 0;
  if (code == 0) {
    if (auto* nodes = budget_.nodes()) nodes->taken(index, token);
    return true;
  }
  if (code == -EIO) transfers_.fail("could not put a tensor's pages back", EIO);
  if (code == -EBADF || code == -ENOTTY)
    transfers_.fail(kClosed, EBADF);  // no block could be taken, for ever
  blocks_.has_left();                 // pinned, or shared with a child
  const bool touched = block.faulted;
  set_resident(index);
  if (touched) arena_.wake(index);
  block.used = use_.next();
  return false;
}

void FrameTransitions::take_out(BlockIndex index, EngineLock& guard) noexcept {
  if (!take(index, guard)) return;
  auto& block = blocks_[index];
  if (block.discard) return discard(index, block.token);
  const auto& sums = transfers_.file().checksums();
  void* frame = backings_->buffer(index, block.token);
  const bool has_copy = block.copy.is_kept();
  Digest digest;
  if (has_copy) {
    guard.unlock();
    digest = sums.digest(frame);
    guard.lock();
    if (block.discard) return discard(index, block.token);
    if (left_unwritten(index, digest, guard)) return;
    transfers_.release_slot(block);
  }
  const bool digested = transfers_.keeps_copies() && block.copy.wanted();
  const auto slot = transfers_.reserve_slot(blocks_);
  guard.unlock();
  const bool zeros = is_zero(frame);
  if (!zeros && slot >= 0) transfers_.file().checksums().take(slot, frame);
  if (!zeros && digested && !has_copy) digest = sums.digest(frame);
  guard.lock();
  if (slot >= 0 && (zeros || block.discard)) transfers_.file().release(slot);
  if (block.discard) return discard(index, block.token);
  if (zeros) {  // as gradients are between two steps
    block.slot = kZeros;
    return block.recalled ? put_back(index, guard) : discard(index, block.token);
  }
  if (slot < 0) transfers_.fail("could not get space for a tensor", static_cast<int>(-slot));
  block.slot = slot;
  if (digested) block.copy.keep(digest);
  transfers_.write(index, slot, frame);
}

// A block that is the same as its copy in the file needs no write. False: it is not.
bool FrameTransitions::left_unwritten(BlockIndex index, const Digest& digest,
                                      EngineLock& guard) noexcept {
  auto& block = blocks_[index];
  if (!block.copy.is_of(digest)) return false;
  block.copy.served();
  if (block.recalled) {
    put_back(index, guard);
  } else {
    transfers_.left_unwritten();
    discard(index, block.token);
  }
  return true;
}

// Nothing lives in the block: its frame is free at once, unless somebody has begun to use it again.
void FrameTransitions::discard(BlockIndex index, Token token) noexcept {
  auto& block = blocks_[index];
  backings_->scrub(index, token);
  budget_.now_free(token);
  blocks_.has_left();
  block.token = kNoToken;
  make_absent_or_empty(block);
  if (std::exchange(block.recalled, false)) demand(index);
  transfers_.feed();
  blocks_.changed();
}

void FrameTransitions::left(const Completion& completion, EngineLock& guard) noexcept {
  const auto index = static_cast<BlockIndex>(completion.cookie);
  auto& block = blocks_[index];
  if (completion.error != 0) transfers_.fail("could not write a tensor out", completion.error);
  transfers_.demoted();
  if (block.recalled) return put_back(index, guard);
  discard(index, block.token);
}

// The bytes of a block that was leaving are still in its frame.
void FrameTransitions::put_back(BlockIndex index, EngineLock& guard) noexcept {
  auto& block = blocks_[index];
  transfers_.came_back(block);
  block.discard = false;
  blocks_.has_left();
  blocks_.set_arriving(index);
  install(index, block.token, guard);
}

// Whoever touches the block meanwhile waits, as for one that leaves. The demoter may have waited
// for it, as for one that leaves.
Token FrameTransitions::exchange(BlockIndex index, Token token, EngineLock& guard) noexcept {
  blocks_.exchange_begins();
  const auto freed = exchanged(index, token, guard);
  if (!blocks_.evictions().empty()) transfers_.wake_writer();
  return freed;
}

Token FrameTransitions::exchanged(BlockIndex index, Token token, EngineLock& guard) noexcept {
  auto& block = blocks_[index];
  if (!take(index, guard)) {
    blocks_.exchange_ends();
    return token;
  }
  if (!block.discard) {
    guard.unlock();
    std::memcpy(backings_->buffer(index, token), backings_->buffer(index, block.token), kGranule);
    guard.lock();
  }
  blocks_.exchange_ends();
  if (block.discard) {  // nothing lives in it
    discard(index, block.token);
    return token;
  }
  const auto freed = std::exchange(block.token, token);
  backings_->scrub(index, freed);
  blocks_.has_left();
  blocks_.set_arriving(index);
  const auto used = block.used;
  const bool asked = block.faulted;
  install(index, token, guard);
  // Nobody has used it for that.
  if (!asked && FrameUse::op_of(block) == use_.op() && block.live != 0) block.used = used;
  return freed;
}

// Few are looked at: the guard may ask.
bool FrameTransitions::reuse_dead_of(FrameNode node, EngineLock& guard) noexcept {
  constexpr int kMost = 64;
  auto index = blocks_.dead().front();
  for (int i = 0; i < kMost && index != kNoBlock; ++i, index = blocks_[index].queued.next) {
    if (budget_.nodes()->of_block(index) != node) continue;
    give_up(index, guard);
    return true;
  }
  return false;
}

void FrameTransitions::make_absent_or_empty(FrameBlock& block) noexcept {
  block.state = block.live == 0 || block.discard ? BlockState::empty : BlockState::absent;
  block.discard = false;
  if (block.state == BlockState::absent) return;
  if (auto* pieces = budget_.pieces()) pieces->drop(blocks_.index_of(block));
  transfers_.release_slot(block);
}

void FrameTransitions::reuse_dead(EngineLock& guard) noexcept {
  if (!blocks_.dead().empty()) give_up(blocks_.dead().front(), guard);
}

void FrameTransitions::give_up(BlockIndex index, EngineLock& guard) noexcept {
  if (take(index, guard)) {
    if (blocks_[index].discard)
      discard(index, blocks_[index].token);
    else
      put_back(index, guard);
  }
  if (!blocks_.evictions().empty())
    transfers_.wake_writer();  // one less leaves: it may have kept the demoter waiting
}

bool FrameTransitions::lose(BlockIndex index, EngineLock& guard) noexcept {
  auto& block = blocks_[index];
  if (block.faulted || block.queue == QueueId::demand) return false;
  if (block.state == BlockState::absent) {
    blocks_.read_no_more(index);
    if (auto* pieces = budget_.pieces()) pieces->drop(index);
    transfers_.release_slot(block);
  } else if (block.state == BlockState::resident) {
    if (block.queue == QueueId::evict) victims_.keep(index);
    if (!take(index, guard)) return false;
    if (block.discard) {  // it died meanwhile
      discard(index, block.token);
      return false;
    }
    if (block.recalled || block.live != 1) {  // touched, or another tensor began in it
      put_back(index, guard);
      return false;
    }
    backings_->scrub(index, block.token);
    budget_.now_free(std::exchange(block.token, kNoToken));
    transfers_.release_slot(block);
    blocks_.has_left();
  } else {
    return false;
  }
  blocks_.set_lost(block);
  ++discarded_;
  transfers_.feed();
  blocks_.changed();
  return true;
}

// The frame is got and filled while the block is lost, so that nothing that is on its way depends
// on memory that others hold.
void FrameTransitions::refill(BlockIndex index, std::uint64_t offset, std::span<const char> bytes,
                              EngineLock& guard) noexcept {
  auto& block = blocks_[index];
  auto token = kNoToken;
  while (block.state == BlockState::lost) {
    if (blocks_.frozen()) {
      blocks_.await_change(guard);
      continue;
    }
    if ((token = budget_.get(guard, better_node(index))) != kNoToken) break;
    if (!blocks_.dead().empty()) {
      reuse_dead(guard);
      continue;
    }
    victims_.want_frames(victims_.demanded() + 1);
    blocks_.await_change(guard);
  }
  if (token == kNoToken) return;
  guard.unlock();
  auto* frame = static_cast<char*>(backings_->buffer(index, token));
  std::memset(frame, 0, offset);
  std::memcpy(frame + offset, bytes.data(), bytes.size());
  std::memset(frame + offset + bytes.size(), 0, kGranule - offset - bytes.size());
  guard.lock();
  while (blocks_.frozen()) blocks_.await_change(guard);
  if (block.state != BlockState::lost) {  // another has filled it, or it died
    backings_->scrub(index, token);
    budget_.now_free(token);
    transfers_.feed();
    return blocks_.changed();
  }
  blocks_.is_lost_no_more();
  blocks_.set_arriving(index);
  block.token = token;
  block.used = use_.now();
  ++refilled_;
  install(index, token, guard);
}

void FrameTransitions::forget_lost(BlockIndex index) noexcept {
  auto& block = blocks_[index];
  block.state = BlockState::empty;
  blocks_.is_lost_no_more();
  if (!std::exchange(block.faulted, false)) return;
  stalls_.end();
  arena_.wake(index);
}

}  // namespace sentinel
