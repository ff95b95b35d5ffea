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
// Four parts: what is known of each block (PieceTable), how much pieces are worth (PieceWorth),
// what is being read (PieceBatches) and what is in its place (MappedPieces).
//
// All functions but read() are called with the engine's lock; worth(), choose(), read(), sound()
// and put() by the fault thread alone, on which none allocates, but for the queue of the threads
// that read where there is no io_uring.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "engine/io/executors.h"
#include "engine/ssd/pieces/mapped_pieces.h"
#include "engine/ssd/pieces/piece_batches.h"
#include "engine/ssd/pieces/piece_table.h"
#include "engine/ssd/pieces/piece_worth.h"

namespace sentinel {

class Pieces {
 public:
  static constexpr std::uint64_t kBytes = kPieceBytes;
  static constexpr std::uint32_t kPerBlock = kPiecesPerBlock;
  static constexpr std::size_t kBatch = PieceBatches::kBatch;
  static constexpr std::size_t kBatches = PieceBatches::kBatches;

  // The arena's range is registered with write protection.
  Pieces(FaultLoop&, std::uintptr_t arena, std::uint64_t arena_bytes);
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
    return table_[index].mapped >> piece & 1;
  }

  // Whether op number `op`, which has just touched it, should get this piece alone. False also
  // where it lacks memory: frames_wanted() is then more than frames(). If true, choose(), read()
  // and put() follow.
  bool worth(BlockIndex, std::uint32_t piece, std::uint64_t op) noexcept;
  // That piece, and where the op is known to go on in equal steps the next ones, through the blocks
  // behind it too, and the batch behind those: `copy_of(block)` is the slot of a block that may be
  // read in pieces, else negative.
  template <class CopyOf>
  void choose(BlockIndex index, std::uint32_t piece, CopyOf&& copy_of) noexcept {
    batches_.choose(index, piece, std::forward<CopyOf>(copy_of));
  }
  // Without the lock: until that piece's batch has come. 0 or an errno.
  int read() noexcept { return batches_.read(); }
  // Whether the bytes are those that were written: of what was dropped meanwhile they need not be,
  // for another block may have its slot.
  bool sound() const noexcept { return batches_.sound(); }
  // Puts that batch in its place and wakes who waits for it. What was dropped meanwhile is left
  // out. Returns how many.
  std::uint64_t put() noexcept;

  // The block is absent no longer, or is to be: before a frame takes the place of its pieces.
  void drop(BlockIndex) noexcept;
  // Returns how many frames of memory are given back by that.
  std::uint64_t drop_all() noexcept;

  std::uint64_t frames() const { return worth_.frames(); }
  std::uint64_t frames_wanted() const { return worth_.frames_wanted(); }
  void add_frame() { worth_.add_frame(); }          // of the budget, given to pieces
  std::uint64_t op() const { return worth_.op(); }  // that has used them last
  bool strides(std::uint64_t op) const {
    return worth_.op() == op && worth_.stride() != 0 && worth_.frames() != 0;
  }

 private:
  PieceTable table_;
  PieceWorth worth_;
  PieceBatches batches_;
  MappedPieces mapped_;
};

}  // namespace sentinel
