// Maps pieces into the arena, and unmaps the oldest to make room.
#include "engine/ssd/pieces/mapped_pieces.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <utility>

namespace sentinel {
namespace {

constexpr std::size_t kDroppedAtOnce = 128;

}  // namespace

MappedPieces::MappedPieces(FaultLoop& loop, std::uintptr_t arena, PieceTable& table)
    : loop_(loop), arena_(arena), table_(table) {
  dropped_.reserve(kDroppedAtOnce);
  self_ = OurFile(out_of_reach(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))));
}

void MappedPieces::set_most(std::uint64_t frames) {
  order_.assign(2 * frames * kPiecesPerBlock, {});
  oldest_ = listed_ = 0;
}

void MappedPieces::make_room(std::uint64_t coming, std::uint64_t room, std::size_t count) noexcept {
  while (listed_ != 0 && (mapped_ + coming > room || listed_ + count > order_.size()))
    drop_oldest();
  unmap_dropped();
}

bool MappedPieces::map(BlockIndex index, std::uint32_t piece, std::uintptr_t from) noexcept {
  const auto to = address(index, piece);
  auto& block = table_[index];
  block.touched = true;
  if (loop_.copy_protected(to, from, kPieceBytes) != 0) {
    madvise(reinterpret_cast<void*>(to), kPieceBytes, MADV_DONTNEED);  // what part there is
    return false;
  }
  block.mapped |= PieceTable::bit(piece);
  block.seen |= PieceTable::bit(piece);
  ++mapped_;
  order_[(oldest_ + listed_++) % order_.size()] = {index, piece};
  return true;
}

MappedPieces::Mapped MappedPieces::unlist_oldest() noexcept {
  const auto oldest = order_[oldest_];
  oldest_ = (oldest_ + 1) % order_.size();
  --listed_;
  return oldest;
}

void MappedPieces::drop_oldest() noexcept {
  const auto [index, piece] = unlist_oldest();
  auto& block = table_[index];
  const auto bit = PieceTable::bit(piece);
  if ((block.mapped & bit) == 0) return;
  block.mapped &= ~bit;
  --mapped_;
  if (dropped_.size() == dropped_.capacity()) unmap_dropped();
  dropped_.push_back({reinterpret_cast<void*>(address(index, piece)), kPieceBytes});
}

// With one call, so that the other processors are told once, where the kernel lets a process give
// such advice to itself (Linux 6.13).
void MappedPieces::unmap_dropped() noexcept {
  if (dropped_.empty()) return;
  const auto bytes = static_cast<ssize_t>(dropped_.size() * kPieceBytes);
  if (!self_.is_open() || syscall(SYS_process_madvise, self_.number(), dropped_.data(),
                                  dropped_.size(), MADV_DONTNEED, 0) != bytes)
    for (const auto& piece : dropped_) madvise(piece.iov_base, piece.iov_len, MADV_DONTNEED);
  dropped_.clear();
}

// The whole block at once: with its last page goes, on newer kernels, its page table, and the frame
// that comes stays one huge page.
void MappedPieces::drop(BlockIndex index) noexcept {
  if (!table_[index].touched) return;
  table_[index].touched = false;
  mapped_ -= static_cast<std::uint64_t>(std::popcount(std::exchange(table_[index].mapped, 0)));
  madvise(reinterpret_cast<void*>(arena_ + index * kGranule), kGranule, MADV_DONTNEED);
}

}  // namespace sentinel
