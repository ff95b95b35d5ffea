// Decides which faults a piece answers, and drops pieces as their block comes or changes.
#include "engine/ssd/pieces/pieces.h"

#include <algorithm>

namespace sentinel {
namespace {

constexpr std::uint64_t kMostFrames = 256;  // they are given back with the lock held

}  // namespace

Pieces::Pieces(FaultLoop& loop, std::uintptr_t arena, std::uint64_t arena_bytes)
    : table_(arena_bytes), batches_(table_, worth_), mapped_(loop, arena, table_) {}

void Pieces::open(std::unique_ptr<Executor> reader, const Checksums& sums) {
  batches_.open(std::move(reader), sums);
}

void Pieces::set_limit(std::uint64_t most_frames, unsigned threads) {
  const auto most = std::min(most_frames, kMostFrames);
  batches_.set_threads(threads);
  worth_.set_limit(most);
  mapped_.set_most(most);
}

bool Pieces::worth(BlockIndex index, std::uint32_t piece, std::uint64_t op) noexcept {
  if (worth_.none()) return false;
  if (worth_.op() != op) {
    worth_.begin(op);
    batches_.forget_all();
  }
  return worth_.judge(table_.in_op(index, op), piece);
}

std::uint64_t Pieces::put() noexcept {
  const auto& pieces = batches_.arrived();
  mapped_.make_room(batches_.coming(), worth_.room(), pieces.size());
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].gone) continue;
    if (!mapped_.map(pieces[i].index, pieces[i].piece, batches_.memory(i))) break;
    ++count;
  }
  batches_.end_arrived();
  return count;
}

void Pieces::drop(BlockIndex index) noexcept {
  batches_.drop(index);
  mapped_.drop(index);
}

std::uint64_t Pieces::drop_all() noexcept {
  while (mapped_.any_listed()) drop(mapped_.take_oldest());
  batches_.forget_all();
  batches_.give_memory_back();
  return worth_.give_back();
}

}  // namespace sentinel
