#include "execute/pieces.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "alloc/ranges.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMostFrames = 256;  // they are given back with the lock held
constexpr std::uint64_t kFirstShare = 32;   // of the budget's frames that pieces begin with: one in
constexpr std::uint64_t kLacked = 32;       // pieces read again are worth a frame more
constexpr std::uint32_t kAgain = 32;        // what a block and another's way out cost, in pieces
constexpr std::uint32_t kAgainGrowing = 128;  // the same while there may be more memory for them
constexpr std::uint32_t kFronts = 4;          // blocks read from front to back: so are the others
constexpr int kLittle = 8;                    // pieces of a block
constexpr std::uint32_t kLongestStep = Pieces::kPerBlock / 4;

}  // namespace

Pieces::Pieces(FaultLoop& loop, std::uintptr_t arena, std::uint64_t arena_bytes)
    : loop_(loop),
      arena_(arena),
      states_bytes_((arena_bytes / kGranule * sizeof(State) + kPage - 1) & ~(kPage - 1)),
      states_(reinterpret_cast<State*>(reserve_anonymous(states_bytes_, kPage))),
      buffer_(reserve_anonymous(kGranule, kGranule)) {
  batch_.reserve(kBatch);
}

Pieces::~Pieces() {
  munmap(states_, states_bytes_);
  munmap(reinterpret_cast<void*>(buffer_), kGranule);
}

void Pieces::open(std::unique_ptr<Executor> reader) { reader_ = std::move(reader); }

void Pieces::set_limit(std::uint64_t most_frames, unsigned threads) {
  threads_ = threads;
  most_frames_ = std::min(most_frames, kMostFrames);
  order_.assign(2 * most_frames_ * kPerBlock, {});
  oldest_ = listed_ = 0;
}

// What is known of a block from an earlier op is forgotten, but for what is mapped.
Pieces::State& Pieces::state_in(BlockIndex index, std::uint64_t op) noexcept {
  auto& state = states_[index];
  if (state.op != op) state = {.mapped = state.mapped, .op = op, .touched = state.touched};
  return state;
}

bool Pieces::worth(BlockIndex index, std::uint32_t piece, std::uint64_t op) noexcept {
  if (most_frames_ == 0) return false;
  if (op_ != op) {
    stride_ = fronts_ = 0;
    lacked_ = 0;
  }
  op_ = op;
  auto& state = state_in(index, op);
  look_for_steps(state, piece);
  if (stride_ == 0 && fronts_ >= kFronts) return false;
  const bool again = (state.seen >> piece & 1) != 0;
  const auto patience = frames_ < most_frames_ ? kAgainGrowing : kAgain;
  if (again && ++state.again >= patience) state.whole = true;
  if (wanted_ == 0) wanted_ = (most_frames_ + kFirstShare - 1) / kFirstShare;
  if (frames_ == wanted_) {
    wanted_ = std::min(wanted_ + lacked_ / kLacked, most_frames_);
    lacked_ %= kLacked;
  }
  return frames_ != 0 && !state.whole;
}

// Threads and operands take turns, so a step is one of which two have been made in the block, not
// the way from the last piece to this. Steps of one piece are reading from front to back, unless
// much of the block is known by then: other sweeps have left it.
void Pieces::look_for_steps(State& state, std::uint32_t piece) noexcept {
  const auto made = [&](std::uint32_t step) {
    return piece >= 2 * step && (state.seen >> (piece - step) & 1) != 0 &&
           (state.seen >> (piece - 2 * step) & 1) != 0;
  };
  if (made(1) && std::popcount(state.seen) < kLittle) {
    if (!state.whole) ++fronts_;
    state.whole = true;
  }
  for (std::uint32_t step = 2; stride_ == 0 && step <= kLongestStep; ++step)
    if (made(step)) stride_ = step;
}

void Pieces::add(BlockIndex index, std::uint32_t piece, std::int64_t slot) noexcept {
  auto& state = state_in(index, op_);
  const auto bit = std::uint64_t{1} << piece;
  if (state.whole || (state.mapped & bit) != 0) return;
  if ((state.seen & bit) != 0) ++lacked_;
  state.seen |= bit;
  batch_.push_back({index, piece, slot});
}

int Pieces::read() noexcept {
  std::array<Completion, kBatch> done;
  std::size_t started = 0, finished = 0;
  int error = 0;
  for (; started < batch_.size() && error == 0; started += error == 0 ? 1 : 0)
    error = -reader_->submit({.slot = batch_[started].slot,
                              .frame = reinterpret_cast<void*>(buffer_ + started * kBytes),
                              .first = batch_[started].piece * kBytes,
                              .bytes = kBytes});
  while (finished < started) {
    const auto count = reader_->wait_for(started - finished, done);
    for (std::size_t i = 0; i < count; ++i) error = std::max(error, done[i].error);
    finished += count;
  }
  return error;
}

std::uint64_t Pieces::put() noexcept {
  while (listed_ != 0 &&
         (mapped_ + batch_.size() > frames_ * kPerBlock || listed_ + batch_.size() > order_.size()))
    drop_oldest();
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    const auto [index, piece, slot, gone] = batch_[i];
    if (gone) continue;
    const auto address = arena_ + index * kGranule + piece * kBytes;
    states_[index].touched = true;
    if (loop_.copy_protected(address, buffer_ + i * kBytes, kBytes) != 0) {
      madvise(reinterpret_cast<void*>(address), kBytes, MADV_DONTNEED);  // what part there is
      break;
    }
    states_[index].mapped |= std::uint64_t{1} << piece;
    ++mapped_;
    order_[(oldest_ + listed_++) % order_.size()] = {index, piece};
    ++count;
  }
  batch_.clear();
  return count;
}

void Pieces::drop_oldest() noexcept {
  const auto [index, piece] = order_[oldest_];
  oldest_ = (oldest_ + 1) % order_.size();
  --listed_;
  auto& state = states_[index];
  const auto bit = std::uint64_t{1} << piece;
  if ((state.mapped & bit) == 0) return;
  state.mapped &= ~bit;
  --mapped_;
  madvise(reinterpret_cast<void*>(arena_ + index * kGranule + piece * kBytes), kBytes,
          MADV_DONTNEED);
}

// The whole block at once: with its last page goes, on newer kernels, its page table, and the frame
// that comes stays one huge page.
void Pieces::drop(BlockIndex index) noexcept {
  for (auto& piece : batch_) piece.gone |= piece.index == index;
  if (!states_[index].touched) return;
  states_[index].touched = false;
  mapped_ -= static_cast<std::uint64_t>(std::popcount(std::exchange(states_[index].mapped, 0)));
  madvise(reinterpret_cast<void*>(arena_ + index * kGranule), kGranule, MADV_DONTNEED);
}

std::uint64_t Pieces::drop_all() noexcept {
  for (; listed_ > 0; --listed_, oldest_ = (oldest_ + 1) % order_.size())
    drop(order_[oldest_].index);
  for (auto& piece : batch_) piece.gone = true;
  wanted_ = 0;
  return std::exchange(frames_, 0);
}

}  // namespace sentinel
