#include "engine/ssd/pieces.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

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
constexpr std::uint64_t kBuffer = Pieces::kBatches * Pieces::kBatch * Pieces::kBytes;
static_assert(kBuffer % kGranule == 0);
constexpr std::uint64_t kPatience = 2 * Pieces::kBatches;  // batches: what is not asked for by then

}  // namespace

Pieces::Pieces(FaultLoop& loop, std::uintptr_t arena, std::uint64_t arena_bytes)
    : loop_(loop),
      arena_(arena),
      states_bytes_((arena_bytes / kGranule * sizeof(State) + kPage - 1) & ~(kPage - 1)),
      states_(reinterpret_cast<State*>(reserve_anonymous(states_bytes_, kPage))),
      buffer_(reserve_anonymous(kBuffer, kGranule)) {
  for (std::size_t i = 0; i < kBatches; ++i) {
    batches_[i].pieces.reserve(kBatch);
    batches_[i].memory = buffer_ + i * kBatch * kBytes;
  }
  dropped_.reserve(4 * kBatch);
  self_ = OurFile(out_of_reach(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))));
}

Pieces::~Pieces() {
  const auto in_flight = [](const Batch& batch) { return batch.in_flight != 0; };
  std::array<Completion, kBatch> done;  // else it might be read to where others lie by then
  while (std::ranges::any_of(batches_, in_flight)) {
    const auto count = reader_->wait(done);
    for (std::size_t i = 0; i < count; ++i) --batches_[done[i].cookie].in_flight;
  }
  reader_.reset();
  self_.close();
  munmap(states_, states_bytes_);
  munmap(reinterpret_cast<void*>(buffer_), kBuffer);
}

void Pieces::open(std::unique_ptr<Executor> reader, const Checksums& sums) {
  reader_ = std::move(reader);
  sums_ = &sums;
}

void Pieces::set_limit(std::uint64_t most_frames, unsigned threads) {
  threads_ = threads;
  most_frames_ = std::min(most_frames, kMostFrames);
  last_wanted_ = std::min(last_wanted_, most_frames_);
  order_.assign(2 * most_frames_ * kPerBlock, {});
  oldest_ = listed_ = 0;
}

// What is known of a block from an earlier op is forgotten, but for what is mapped.
Pieces::State& Pieces::state_in(BlockIndex index, std::uint64_t op) noexcept {
  auto& state = states_[index];
  if (state.op != op)
    state = {.mapped = state.mapped, .coming = state.coming, .op = op, .touched = state.touched};
  return state;
}

bool Pieces::worth(BlockIndex index, std::uint32_t piece, std::uint64_t op) noexcept {
  if (most_frames_ == 0) return false;
  if (op_ != op) {
    stride_ = fronts_ = 0;
    lacked_ = 0;
    for (auto& batch : batches_) forget(batch);
  }
  op_ = op;
  auto& state = state_in(index, op);
  look_for_steps(state, piece);
  if (stride_ != 0 && wanted_ + 1 < last_wanted_) wanted_ = last_wanted_ - 1;
  if (stride_ == 0 && fronts_ >= kFronts) return false;
  const bool again = (state.seen >> piece & 1) != 0;
  const auto patience = frames_ < most_frames_ ? kAgainGrowing : kAgain;
  if (again && ++state.again >= patience) state.whole = true;
  if (wanted_ == 0) wanted_ = (most_frames_ + kFirstShare - 1) / kFirstShare;
  if (frames_ == wanted_) {
    wanted_ = std::min(wanted_ + lacked_ / kLacked, most_frames_);
    lacked_ %= kLacked;
  }
  if (stride_ != 0) last_wanted_ = wanted_;
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

// One is always idle when choose() begins: what is asked for is put in place at once.
Pieces::Batch* Pieces::idle_batch() noexcept {
  for (auto& batch : batches_) {
    if (&batch == now_ || batch.in_flight != 0) continue;
    if (chosen_ - batch.chosen >= kPatience) forget(batch);
    if (!std::ranges::all_of(batch.pieces, &Chosen::gone)) continue;
    batch.pieces.clear();
    batch.started = false;
    return &batch;
  }
  return nullptr;
}

Pieces::Batch* Pieces::batch_with(BlockIndex index, std::uint32_t piece) noexcept {
  if ((states_[index].coming >> piece & 1) == 0) return nullptr;
  for (auto& batch : batches_)
    for (const auto& chosen : batch.pieces)
      if (chosen.index == index && chosen.piece == piece && !chosen.gone) return &batch;
  return nullptr;
}

void Pieces::add(Batch& batch, BlockIndex index, std::uint32_t piece, std::int64_t slot) noexcept {
  auto& state = state_in(index, op_);
  const auto bit = std::uint64_t{1} << piece;
  if (state.whole || ((state.mapped | state.coming) & bit) != 0) return;
  if ((state.seen & bit) != 0) ++lacked_;
  state.coming |= bit;
  ++coming_;
  batch.pieces.push_back({index, piece, slot});
}

// Its memory is not used again before what is in flight has come.
void Pieces::forget(Batch& batch) noexcept {
  for (auto& piece : batch.pieces) {
    if (std::exchange(piece.gone, true)) continue;
    states_[piece.index].coming &= ~(std::uint64_t{1} << piece.piece);
    --coming_;
  }
}

int Pieces::start(Batch& batch) noexcept {
  if (std::exchange(batch.started, true)) return 0;
  std::array<Transfer, kBatch> transfers;
  for (const auto& piece : batch.pieces)
    transfers[batch.in_flight++] = {
        .slot = piece.slot,
        .frame = reinterpret_cast<void*>(batch.memory + (&piece - batch.pieces.data()) * kBytes),
        .cookie = static_cast<std::uint64_t>(&batch - batches_.data()),
        .first = piece.piece * kBytes,
        .bytes = kBytes,
        .unchecked = true};
  return -reader_->submit_all({transfers.data(), batch.in_flight});
}

int Pieces::read() noexcept {
  int error = start(*now_);
  if (error == 0 && then_ != nullptr) error = start(*then_);
  std::array<Completion, kBatch> done;
  while (error == 0 && now_->in_flight != 0) {
    const auto count = reader_->wait_for(now_->in_flight, done);
    for (std::size_t i = 0; i < count; ++i) {
      --batches_[done[i].cookie].in_flight;
      error = std::max(error, done[i].error);
    }
  }
  for (std::size_t i = 0; error == 0 && i < now_->pieces.size(); ++i) {
    auto& piece = now_->pieces[i];
    piece.other = !sums_->match(piece.slot, piece.piece * kBytes,
                                reinterpret_cast<void*>(now_->memory + i * kBytes), kBytes);
  }
  return error;
}

bool Pieces::sound() const noexcept {
  return std::ranges::all_of(now_->pieces, [](const Chosen& c) { return c.gone || !c.other; });
}

std::uint64_t Pieces::put() noexcept {
  while (listed_ != 0 &&
         (mapped_ + coming_ > frames_ * kPerBlock || listed_ + now_->pieces.size() > order_.size()))
    drop_oldest();
  unmap_dropped();
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < now_->pieces.size(); ++i) {
    const auto& [index, piece, slot, gone, other] = now_->pieces[i];
    if (gone) continue;
    const auto address = arena_ + index * kGranule + piece * kBytes;
    auto& state = states_[index];
    state.touched = true;
    if (loop_.copy_protected(address, now_->memory + i * kBytes, kBytes) != 0) {
      madvise(reinterpret_cast<void*>(address), kBytes, MADV_DONTNEED);  // what part there is
      break;
    }
    state.mapped |= std::uint64_t{1} << piece;
    state.seen |= std::uint64_t{1} << piece;
    ++mapped_;
    order_[(oldest_ + listed_++) % order_.size()] = {index, piece};
    ++count;
  }
  forget(*now_);
  now_ = nullptr;
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
  if (dropped_.size() == dropped_.capacity()) unmap_dropped();
  dropped_.push_back({reinterpret_cast<void*>(arena_ + index * kGranule + piece * kBytes), kBytes});
}

// With one call, so that the other processors are told once, where the kernel lets a process give
// such advice to itself (Linux 6.13).
void Pieces::unmap_dropped() noexcept {
  if (dropped_.empty()) return;
  const auto bytes = static_cast<ssize_t>(dropped_.size() * kBytes);
  if (!self_.is_open() || syscall(SYS_process_madvise, self_.number(), dropped_.data(),
                                  dropped_.size(), MADV_DONTNEED, 0) != bytes)
    for (const auto& piece : dropped_) madvise(piece.iov_base, piece.iov_len, MADV_DONTNEED);
  dropped_.clear();
}

// The whole block at once: with its last page goes, on newer kernels, its page table, and the frame
// that comes stays one huge page.
void Pieces::drop(BlockIndex index) noexcept {
  if (states_[index].coming != 0)
    for (auto& batch : batches_)
      for (auto& piece : batch.pieces) piece.gone |= piece.index == index;
  coming_ -= static_cast<std::uint64_t>(std::popcount(std::exchange(states_[index].coming, 0)));
  if (!states_[index].touched) return;
  states_[index].touched = false;
  mapped_ -= static_cast<std::uint64_t>(std::popcount(std::exchange(states_[index].mapped, 0)));
  madvise(reinterpret_cast<void*>(arena_ + index * kGranule), kGranule, MADV_DONTNEED);
}

std::uint64_t Pieces::drop_all() noexcept {
  for (; listed_ > 0; --listed_, oldest_ = (oldest_ + 1) % order_.size())
    drop(order_[oldest_].index);
  for (auto& batch : batches_) forget(batch);
  madvise(reinterpret_cast<void*>(buffer_), kBuffer, MADV_DONTNEED);
  wanted_ = 0;
  return std::exchange(frames_, 0);
}

}  // namespace sentinel
