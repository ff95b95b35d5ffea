// Which pieces of each block there are, and which the op that runs has asked for: a few words a
// block, in memory that comes with first use. It maps, reads and decides nothing.
//
// The engine's lock guards it.
#pragma once

#include <sys/mman.h>

#include <cstdint>

#include "alloc/ranges.h"
#include "engine/granule.h"

namespace sentinel {

constexpr std::uint64_t kPieceBytes = 32u << 10;
constexpr std::uint32_t kPiecesPerBlock = kGranule / kPieceBytes;  // one bit each of a word

struct BlockPieces {
  std::uint64_t mapped = 0;
  std::uint64_t coming = 0;  // in a batch
  std::uint64_t seen = 0;    // by the op
  std::uint64_t op = 0;
  std::uint32_t again = 0;  // pieces asked for that had been dropped
  bool touched = false;     // has had pieces, and may have a page table without pages
  bool whole = false;       // pieces are not worth it
};

class PieceTable {
 public:
  explicit PieceTable(std::uint64_t arena_bytes)
      : bytes_((arena_bytes / kGranule * sizeof(BlockPieces) + kPage - 1) & ~(kPage - 1)),
        blocks_(reinterpret_cast<BlockPieces*>(reserve_anonymous(bytes_, kPage))) {}
  ~PieceTable() { munmap(blocks_, bytes_); }
  PieceTable(const PieceTable&) = delete;
  PieceTable& operator=(const PieceTable&) = delete;

  static constexpr std::uint64_t bit(std::uint32_t piece) { return std::uint64_t{1} << piece; }

  BlockPieces& operator[](BlockIndex index) noexcept { return blocks_[index]; }
  const BlockPieces& operator[](BlockIndex index) const noexcept { return blocks_[index]; }
  // What is known of a block from an earlier op is forgotten, but for what is mapped.
  BlockPieces& in_op(BlockIndex index, std::uint64_t op) noexcept {
    auto& block = blocks_[index];
    if (block.op != op)
      block = {.mapped = block.mapped, .coming = block.coming, .op = op, .touched = block.touched};
    return block;
  }

 private:
  static constexpr std::uint64_t kPage = 4096;

  std::uint64_t bytes_;
  BlockPieces* blocks_;  // zero pages until they are used
};

}  // namespace sentinel
