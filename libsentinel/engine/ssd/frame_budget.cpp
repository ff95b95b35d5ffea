// Makes frames up to the limit, hands free ones out, and destroys surplus ones.
#include "engine/ssd/frame_budget.h"

#include <algorithm>

#include "engine/host/limits.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kPiecesShare = 2;  // of what is beyond the smallest budget: half at most

}  // namespace

FrameBudget::FrameBudget(FrameBackings& backings, FrameBlocks& blocks, const FrameUse& use,
                         const FrameTransfers& transfers)
    : backings_(backings), blocks_(blocks), use_(use), transfers_(transfers) {
  free_.reserve(blocks_.size());
}

void FrameBudget::set_limit(std::uint64_t frames, std::uint64_t least) {
  limit_ = frames;
  drop_pieces();
  if (pieces_)
    pieces_->set_limit((limit_ - std::min(limit_, least)) / kPiecesShare, thread_count());
}

bool FrameBudget::destroy_free() noexcept {
  if (free_.empty()) return false;
  const auto token = free_.back();
  free_.pop_back();
  destroy(token);
  return true;
}

void FrameBudget::destroy(Token token) noexcept {
  if (nodes_) nodes_->ends(token);
  backings_->destroy(token);
  --frames_;
}

bool FrameBudget::has_free_fast() const noexcept {
  return std::ranges::any_of(free_, [&](Token t) { return nodes_->of(t) == FrameNode::fast; });
}

bool FrameBudget::frame_at_hand() const noexcept {
  const bool over = pieces_ && pieces_->op() != use_.op() && pieces_->frames() != 0;
  return !lacks_frame() || !blocks_.dead().empty() || over;
}

// Pieces of an op that is over have held theirs for long enough. What was written last is used
// last: it is in the caches of whoever drives the disk, and slow to write to.
Token FrameBudget::get(EngineLock& guard, FrameNode wanted) noexcept {
  const bool makes_better = tells_apart() && !is_full() && nodes_->has_room(wanted);
  if (const auto token = get_free(wanted); token != kNoToken) return token;
  if (!free_.empty() && !makes_better) {
    const auto token = free_.front();
    free_.erase(free_.begin());
    return token;
  }
  if (is_full() && pieces_ && pieces_->op() != use_.op()) drop_pieces();
  if (is_full()) return kNoToken;
  return make(guard, nodes_ ? nodes_->of_next(wanted) : wanted);
}

Token FrameBudget::get_free(FrameNode node) noexcept {
  const auto is_there = [&](Token token) { return !tells_apart() || nodes_->of(token) == node; };
  const auto found = std::ranges::find_if(free_, is_there);
  if (found == free_.end()) return kNoToken;
  const auto token = *found;
  free_.erase(found);
  return token;
}

Token FrameBudget::make(EngineLock& guard, FrameNode node) noexcept {
  ++frames_;
  peak_bytes_ = std::max(peak_bytes_, bytes());
  if (nodes_) nodes_->adds(node);
  blocks_.making_begins();
  guard.unlock();
  const auto token = backings_->create(node);
  guard.lock();
  blocks_.making_ends();
  if (token < 0) transfers_.fail("could not get memory for a frame", -token);
  if (nodes_) nodes_->made(token, node);
  return token;
}

// Pieces that lack memory come first, for they make that the op waits less often; where somebody
// waits for a frame, in turns.
void FrameBudget::now_free(Token token) noexcept {
  const bool lacking =
      pieces_ && pieces_->op() == use_.op() && pieces_->frames() < pieces_->frames_wanted();
  pieces_next_ = blocks_.demanded().empty() || !pieces_next_;
  if (!lacking || !pieces_next_) return free_.push_back(token);
  if (nodes_) nodes_->ends(token);
  backings_->destroy(token);
  pieces_->add_frame();
}

void FrameBudget::drop_pieces() noexcept {
  if (pieces_) frames_ -= pieces_->drop_all();
}

void FrameBudget::destroy_all_free() noexcept {
  for (const auto token : free_) {
    if (nodes_) nodes_->ends(token);
    backings_.pool().destroy(token);
  }
  forget_free();
}

void FrameBudget::forget_free() noexcept {
  frames_ -= free_.size();
  free_.clear();
}

}  // namespace sentinel
