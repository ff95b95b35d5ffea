// Pieces in their place in the arena, read-only, in the order in which they came. It reads nothing
// and knows no frame.
//
// Invariant: every mapped piece is listed. Those that drop() has taken away are still named.
// The engine's lock guards it; map() and make_room() are the fault thread's.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "base/descriptor.h"
#include "capture/userfault/fault_loop.h"
#include "engine/ssd/pieces/piece_table.h"

namespace sentinel {

class MappedPieces {
 public:
  MappedPieces(FaultLoop&, std::uintptr_t arena, PieceTable&);
  ~MappedPieces() { self_.close(); }
  MappedPieces(const MappedPieces&) = delete;
  MappedPieces& operator=(const MappedPieces&) = delete;

  void set_most(std::uint64_t frames);

  // Drops the oldest until `count` more may be listed, and those mapped and the `coming` fit into
  // `room`.
  void make_room(std::uint64_t coming, std::uint64_t room, std::size_t count) noexcept;
  // Puts one in its place and wakes who waits for it; false: it is not there.
  bool map(BlockIndex, std::uint32_t piece, std::uintptr_t from) noexcept;

  void drop(BlockIndex) noexcept;
  bool any_listed() const noexcept { return listed_ != 0; }
  BlockIndex take_oldest() noexcept { return unlist_oldest().index; }  // its block; it stays mapped

 private:
  struct Mapped {
    BlockIndex index;
    std::uint32_t piece;
  };
  Mapped unlist_oldest() noexcept;
  void drop_oldest() noexcept;
  void unmap_dropped() noexcept;
  std::uintptr_t address(BlockIndex index, std::uint32_t piece) const noexcept {
    return arena_ + index * kGranule + piece * kPieceBytes;
  }

  FaultLoop& loop_;
  std::uintptr_t arena_;
  PieceTable& table_;
  std::vector<Mapped> order_;  // a ring: as they came; those dropped by drop() are still named
  std::size_t oldest_ = 0, listed_ = 0;
  std::vector<iovec> dropped_;  // and still mapped
  OurFile self_;                // a descriptor of this process, where it can be had
  std::uint64_t mapped_ = 0;
};

}  // namespace sentinel
