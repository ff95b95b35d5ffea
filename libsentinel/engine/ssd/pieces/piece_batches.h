// Pieces that are read together, into memory of their own: the batch that is asked for, and ahead
// of need the one behind it. It puts nothing into the arena.
//
// The engine's lock guards all but read(), which reads no `gone`. The fault thread alone calls
// choose(), read(), sound() and arrived(), so one batch at most is asked for at a time. None of
// them allocates, but for the queue of the threads that read where there is no io_uring.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/io/executors.h"
#include "engine/ssd/pieces/piece_table.h"
#include "engine/ssd/pieces/piece_worth.h"

namespace sentinel {

// A piece that has been chosen to be read.
struct ChosenPiece {
  BlockIndex index;
  std::uint32_t piece;
  std::int64_t slot;
  bool gone = false;   // dropped since
  bool other = false;  // has come, with other bytes than were written
};

class PieceBatches {
 public:
  static constexpr std::size_t kBatch = 32;   // read together
  static constexpr std::size_t kBatches = 6;  // in memory: for two operands of two threads, and two

  PieceBatches(PieceTable&, PieceWorth&);
  ~PieceBatches();  // waits for what is in flight
  PieceBatches(const PieceBatches&) = delete;
  PieceBatches& operator=(const PieceBatches&) = delete;

  void open(std::unique_ptr<Executor> reader, const Checksums&);
  void set_threads(unsigned threads) noexcept { threads_ = threads; }

  // The batch with this piece, and perhaps the one behind it: as Pieces::choose().
  template <class CopyOf>
  void choose(BlockIndex, std::uint32_t piece, CopyOf&& copy_of) noexcept;
  int read() noexcept;  // without the lock: until that batch has come; 0 or an errno
  bool sound() const noexcept;
  // What read() has brought, and where each piece of it lies.
  const std::vector<ChosenPiece>& arrived() const noexcept { return now_->pieces; }
  std::uintptr_t memory(std::size_t i) const noexcept { return now_->memory + i * kPieceBytes; }
  void end_arrived() noexcept;

  std::uint64_t coming() const noexcept { return coming_; }
  void drop(BlockIndex) noexcept;
  void forget_all() noexcept;
  void give_memory_back() noexcept;

 private:
  struct Batch {
    std::vector<ChosenPiece> pieces;  // all gone: idle, once none is in flight
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

  PieceTable& table_;
  PieceWorth& worth_;
  std::uintptr_t buffer_;
  std::unique_ptr<Executor> reader_;
  const Checksums* sums_ = nullptr;
  std::array<Batch, kBatches> batches_;  // read() looks at all of them but `gone`
  Batch* now_ = nullptr;                 // what is asked for
  Batch* then_ = nullptr;                // the one behind it, if it is to be read too
  std::uint64_t chosen_ = 0;
  std::uint64_t coming_ = 0;  // pieces, in all batches
  unsigned threads_ = 1;      // that compute
};

// What comes ahead of need takes a quarter of the pieces' memory at most.
template <class CopyOf>
void PieceBatches::choose(BlockIndex index, std::uint32_t piece, CopyOf&& copy_of) noexcept {
  constexpr std::uint64_t kAheadShare = 4;
  now_ = batch_with(index, piece);
  if (now_ == nullptr) fill(*(now_ = idle_batch()), index, piece, copy_of);
  then_ = nullptr;
  const bool for_all = 2 * threads_ < kBatches;  // their batches would be forgotten for one another
  if (worth_.stride() == 0 || !for_all || coming_ + kBatch > worth_.room() / kAheadShare) return;
  then_ = idle_batch();
  if (then_ != nullptr) fill(*then_, now_->next, now_->next_piece, copy_of);
}

// As many as leave the instruction that asked for the first one the time of three other batches for
// each thread before it is dropped, and through as many blocks as one piece of every second needs.
template <class CopyOf>
void PieceBatches::fill(Batch& batch, BlockIndex index, std::uint32_t piece,
                        CopyOf&& copy_of) noexcept {
  constexpr BlockIndex kMostBlocks = kBatch / 2;
  const auto most = std::clamp<std::uint64_t>(worth_.room() / (4 * threads_), 1, kBatch);
  batch.chosen = ++chosen_;
  const auto last = index + kMostBlocks;
  for (std::int64_t slot = copy_of(index); index < last && batch.pieces.size() < most;) {
    if (slot >= 0) add(batch, index, piece, slot);
    if (worth_.stride() == 0) return;
    piece += worth_.stride();
    if (piece < kPiecesPerBlock) continue;
    piece -= kPiecesPerBlock;
    slot = copy_of(++index);
  }
  batch.next = index;
  batch.next_piece = piece;
}

}  // namespace sentinel
