// Parts of absent blocks that may be read while the blocks stay absent.
//
// An op that strides through more than fits (a normalization's backward pass goes over all images
// once for each channel) uses a few pages of every block again and again, and would have whole
// blocks exchanged each time. A *piece* is a part of an absent block's copy in the slow tier, put
// in its place read-only. The copy stays what counts: a piece is dropped without being written, and
// the first write to one is a fault, for which the whole block comes back.
//
// Where the op goes on in equal steps, pieces are read in batches, and the batch behind the one
// that is asked for with it, into memory apart: it is put in place when it is asked for in turn, so
// what comes too early takes nobody's place.
//
// How much is worth it shows while an op runs: blocks that are read from front to back are better
// exchanged whole, and so is what is dropped and read again too often. Pieces take their memory
// from the frames of the budget.
//
// All functions but read() are called with the engine's lock; worth(), choose(), read(), sound()
// and put() by the fault thread alone, on which none allocates, but for the queue of the threads
// that read where there is no io_uring.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "engine/io/executors.h"
#include "engine/ssd/blocks.h"

namespace sentinel {

class Pieces {
 public:
  static constexpr std::uint64_t kBytes = 32u << 10;
  static constexpr std::uint32_t kPerBlock = kGranule / kBytes;  // one bit each of a word
  static constexpr std::size_t kBatch = 32;                      // read together
  static constexpr std::size_t kBatches = 6;  // in memory: for two operands of two threads, and two

  // The arena's range is registered with write protection.
  Pieces(FaultLoop&, std::uintptr_t arena, std::uint64_t arena_bytes);
  ~Pieces();
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  // Where from, kBatch * kBatches deep, and the checksums of what lies there; before that nothing
  // is worth it. `most_frames` may be taken from the budget; so many threads compute.
  void open(std::unique_ptr<Executor> reader, const Checksums&);
  void set_limit(std::uint64_t most_frames, unsigned threads);

  static std::uint32_t piece(std::uintptr_t address) {
    return static_cast<std::uint32_t>(address % kGranule / kBytes);
  }
  bool mapped(BlockIndex index, std::uint32_t piece) const {
    return states_[index].mapped >> piece & 1;
  }

  // Whether op number `op`, which has just touched it, should get this piece alone. False also
  // where it lacks memory: frames_wanted() is then more than frames(). If true, choose(), read()
  // and put() follow.
  bool worth(BlockIndex, std::uint32_t piece, std::uint64_t op) noexcept;
  // That piece, and where the op is known to go on in equal steps the next ones, through the blocks
  // behind it too, and the batch behind those: `copy_of(block)` is the slot of a block that may be
  // read in pieces, else negative.
  template <class CopyOf>
  void choose(BlockIndex, std::uint32_t piece, CopyOf&& copy_of) noexcept;
  // Without the lock: until that piece's batch has come. 0 or an errno.
  int read() noexcept;
  // Whether the bytes are those that were written: of what was dropped meanwhile they need not be,
  // for another block may have its slot.
  bool sound() const noexcept;
  // Puts that batch in its place and wakes who waits for it. What was dropped meanwhile is left
  // out. Returns how many.
  std::uint64_t put() noexcept;

  // The block is absent no longer, or is to be: before a frame takes the place of its pieces.
  void drop(BlockIndex) noexcept;
  // Returns how many frames of memory are given back by that.
  std::uint64_t drop_all() noexcept;

  std::uint64_t frames() const { return frames_; }
  std::uint64_t frames_wanted() const { return wanted_; }
  void add_frame() { ++frames_; }           // of the budget, given to pieces
  std::uint64_t op() const { return op_; }  // that has used them last
  bool strides(std::uint64_t op) const { return op_ == op && stride_ != 0 && frames_ != 0; }

 private:
  struct State {
    std::uint64_t mapped = 0;
    std::uint64_t coming = 0;  // in a batch
    std::uint64_t seen = 0;    // by the op
    std::uint64_t op = 0;
    std::uint32_t again = 0;  // pieces asked for that had been dropped
    bool touched = false;     // has had pieces, and may have a page table without pages
    bool whole = false;       // pieces are not worth it
  };
  State& state_in(BlockIndex, std::uint64_t op) noexcept;
  void look_for_steps(State&, std::uint32_t piece) noexcept;

  struct Chosen {
    BlockIndex index;
    std::uint32_t piece;
    std::int64_t slot;
    bool gone = false;   // dropped since
    bool other = false;  // has come, with other bytes than were written
  };
  struct Batch {
    std::vector<Chosen> pieces;  // all gone: idle, once none is in flight
    std::uintptr_t memory = 0;
    std::size_t in_flight = 0;  // these two are the fault thread's
    bool started = false;
    BlockIndex next = 0;  // where the op goes on behind it
    std::uint32_t next_piece = 0;
    std::uint64_t chosen = 0;  // the how-manieth batch it is
  };
  Batch* idle_batch() noexcept;
  Batch* batch_with(BlockIndex, std::uint32_t piece) noexcept;
  template <class CopyOf>
  void fill(Batch&, BlockIndex, std::uint32_t piece, CopyOf&& copy_of) noexcept;
  void add(Batch&, BlockIndex, std::uint32_t piece, std::int64_t slot) noexcept;
  int start(Batch&) noexcept;
  void forget(Batch&) noexcept;

  struct Mapped {
    BlockIndex index;
    std::uint32_t piece;
  };
  void drop_oldest() noexcept;
  void unmap_dropped() noexcept;

  FaultLoop& loop_;
  std::uintptr_t arena_;
  std::uint64_t states_bytes_;
  State* states_;  // per block; zero pages until they are used
  std::uintptr_t buffer_;
  std::unique_ptr<Executor> reader_;
  const Checksums* sums_ = nullptr;
  std::array<Batch, kBatches> batches_;  // read() looks at all of them but `gone`
  Batch* now_ = nullptr;                 // what is asked for
  Batch* then_ = nullptr;                // the one behind it, if it is to be read too
  std::uint64_t chosen_ = 0;
  std::vector<Mapped> order_;  // a ring: as they came; those dropped by drop() are still named
  std::size_t oldest_ = 0, listed_ = 0;
  std::vector<iovec> dropped_;  // and still mapped
  OurFile self_;                // a descriptor of this process, where it can be had
  std::uint64_t most_frames_ = 0, frames_ = 0, wanted_ = 0, mapped_ = 0, coming_ = 0;
  std::uint64_t lacked_ = 0;       // pieces read again since `wanted_` last grew
  std::uint64_t last_wanted_ = 0;  // frames, by the last op that went on in equal steps
  unsigned threads_ = 1;
  std::uint64_t op_ = 0;
  std::uint32_t stride_ = 0;  // of the op, in pieces; 0: none is known
  std::uint32_t fronts_ = 0;  // blocks that the op has read from front to back
};

// What comes ahead of need takes a quarter of the pieces' memory at most.
template <class CopyOf>
void Pieces::choose(BlockIndex index, std::uint32_t piece, CopyOf&& copy_of) noexcept {
  constexpr std::uint64_t kAheadShare = 4;
  now_ = batch_with(index, piece);
  if (now_ == nullptr) fill(*(now_ = idle_batch()), index, piece, copy_of);
  then_ = nullptr;
  const bool for_all = 2 * threads_ < kBatches;  // their batches would be forgotten for one another
  if (stride_ == 0 || !for_all || coming_ + kBatch > frames_ * kPerBlock / kAheadShare) return;
  then_ = idle_batch();
  if (then_ != nullptr) fill(*then_, now_->next, now_->next_piece, copy_of);
}

// As many as leave the instruction that asked for the first one the time of three other batches for
// each thread before it is dropped, and through as many blocks as one piece of every second needs.
template <class CopyOf>
void Pieces::fill(Batch& batch, BlockIndex index, std::uint32_t piece, CopyOf&& copy_of) noexcept {
  constexpr BlockIndex kMostBlocks = kBatch / 2;
  const auto most = std::clamp<std::uint64_t>(frames_ * kPerBlock / (4 * threads_), 1, kBatch);
  batch.chosen = ++chosen_;
  const auto last = index + kMostBlocks;
  for (std::int64_t slot = copy_of(index); index < last && batch.pieces.size() < most;) {
    if (slot >= 0) add(batch, index, piece, slot);
    if (stride_ == 0) return;
    piece += stride_;
    if (piece < kPerBlock) continue;
    piece -= kPerBlock;
    slot = copy_of(++index);
  }
  batch.next = index;
  batch.next_piece = piece;
}

}  // namespace sentinel
