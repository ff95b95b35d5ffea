// Reads neighbouring pieces in batches, the next batch ahead of need.
#include "engine/ssd/pieces/piece_batches.h"

#include <sys/mman.h>

#include <bit>
#include <utility>

#include "alloc/ranges.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kBuffer = PieceBatches::kBatches * PieceBatches::kBatch * kPieceBytes;
static_assert(kBuffer % kGranule == 0);
constexpr std::uint64_t kPatience =
    2 * PieceBatches::kBatches;  // batches: what is not asked for by then

}  // namespace

PieceBatches::PieceBatches(PieceTable& table, PieceWorth& worth)
    : table_(table), worth_(worth), buffer_(reserve_anonymous(kBuffer, kGranule)) {
  for (std::size_t i = 0; i < kBatches; ++i) {
    batches_[i].pieces.reserve(kBatch);
    batches_[i].memory = buffer_ + i * kBatch * kPieceBytes;
  }
}

PieceBatches::~PieceBatches() {
  const auto in_flight = [](const Batch& batch) { return batch.in_flight != 0; };
  std::array<Completion, kBatch> done;  // else it might be read to where others lie by then
  while (std::ranges::any_of(batches_, in_flight)) {
    const auto count = reader_->wait(done);
    for (std::size_t i = 0; i < count; ++i) --batches_[done[i].cookie].in_flight;
  }
  reader_.reset();
  munmap(reinterpret_cast<void*>(buffer_), kBuffer);
}

void PieceBatches::open(std::unique_ptr<Executor> reader, const Checksums& sums) {
  reader_ = std::move(reader);
  sums_ = &sums;
}

// One is always idle when choose() begins: what is asked for is put in place at once.
PieceBatches::Batch* PieceBatches::idle_batch() noexcept {
  for (auto& batch : batches_) {
    if (&batch == now_ || batch.in_flight != 0) continue;
    if (chosen_ - batch.chosen >= kPatience) forget(batch);
    if (!std::ranges::all_of(batch.pieces, &ChosenPiece::gone)) continue;
    batch.pieces.clear();
    batch.started = false;
    return &batch;
  }
  return nullptr;
}

PieceBatches::Batch* PieceBatches::batch_with(BlockIndex index, std::uint32_t piece) noexcept {
  if ((table_[index].coming >> piece & 1) == 0) return nullptr;
  for (auto& batch : batches_)
    for (const auto& chosen : batch.pieces)
      if (chosen.index == index && chosen.piece == piece && !chosen.gone) return &batch;
  return nullptr;
}

void PieceBatches::add(Batch& batch, BlockIndex index, std::uint32_t piece,
                       std::int64_t slot) noexcept {
  auto& block = table_.in_op(index, worth_.op());
  const auto bit = PieceTable::bit(piece);
  if (block.whole || ((block.mapped | block.coming) & bit) != 0) return;
  if ((block.seen & bit) != 0) worth_.lacked();
  block.coming |= bit;
  ++coming_;
  batch.pieces.push_back({index, piece, slot});
}

// Its memory is not used again before what is in flight has come.
void PieceBatches::forget(Batch& batch) noexcept {
  for (auto& piece : batch.pieces) {
    if (std::exchange(piece.gone, true)) continue;
    table_[piece.index].coming &= ~PieceTable::bit(piece.piece);
    --coming_;
  }
}

void PieceBatches::forget_all() noexcept {
  for (auto& batch : batches_) forget(batch);
}

void PieceBatches::drop(BlockIndex index) noexcept {
  if (table_[index].coming != 0)
    for (auto& batch : batches_)
      for (auto& piece : batch.pieces) piece.gone |= piece.index == index;
  coming_ -= static_cast<std::uint64_t>(std::popcount(std::exchange(table_[index].coming, 0)));
}

int PieceBatches::start(Batch& batch) noexcept {
  if (std::exchange(batch.started, true)) return 0;
  std::array<Transfer, kBatch> transfers;
  for (const auto& piece : batch.pieces)
    transfers[batch.in_flight++] = {
        .slot = piece.slot,
        .frame =
            reinterpret_cast<void*>(batch.memory + (&piece - batch.pieces.data()) * kPieceBytes),
        .cookie = static_cast<std::uint64_t>(&batch - batches_.data()),
        .first = piece.piece * kPieceBytes,
        .bytes = kPieceBytes,
        .unchecked = true};
  return -reader_->submit_all({transfers.data(), batch.in_flight});
}

int PieceBatches::read() noexcept {
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
    piece.other = !sums_->match(piece.slot, piece.piece * kPieceBytes,
                                reinterpret_cast<void*>(memory(i)), kPieceBytes);
  }
  return error;
}

bool PieceBatches::sound() const noexcept {
  return std::ranges::all_of(now_->pieces, [](const ChosenPiece& c) { return c.gone || !c.other; });
}

void PieceBatches::end_arrived() noexcept {
  forget(*now_);
  now_ = nullptr;
}

void PieceBatches::give_memory_back() noexcept {
  madvise(reinterpret_cast<void*>(buffer_), kBuffer, MADV_DONTNEED);
}

}  // namespace sentinel
