// Records which block followed which, in small associative tables.
#include "plan/policies/deepum/block_table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sentinel::plan {

const BlockTable::Entry* BlockTable::find(BlockId b) const {
  if (rows_.empty()) return nullptr;
  const std::uint32_t index = b.value % kRows;
  const auto mask = static_cast<std::uint32_t>(rows_.size() - 1);
  for (std::uint32_t i = index & mask;; i = (i + 1) & mask) {
    const Row& row = rows_[i];
    if (row.index == kFree) return nullptr;
    if (row.index != index) continue;
    for (const Entry& e : row.ways)
      if (e.used && e.block == b.value) return &e;
    return nullptr;
  }
}

void BlockTable::grow() {
  std::vector<Row> old = std::exchange(rows_, {});
  rows_.resize(std::max<std::size_t>(4, 2 * old.size()));
  used_rows_ = 0;
  for (Row& r : old)
    if (r.index != kFree) row(r.index) = r;
}

// At most half of the rows are used, or there is one for each index: a free one ends each probe.
BlockTable::Row& BlockTable::row(std::uint32_t index) {
  if (rows_.size() < kRows && 2 * (used_rows_ + 1) > rows_.size()) grow();
  const auto mask = static_cast<std::uint32_t>(rows_.size() - 1);
  std::uint32_t i = index & mask;
  while (rows_[i].index != kFree && rows_[i].index != index) i = (i + 1) & mask;
  if (rows_[i].index == kFree) {
    rows_[i].index = index;
    ++used_rows_;
  }
  return rows_[i];
}

// Made where absent, in place of the way not used for the longest.
BlockTable::Entry& BlockTable::entry(BlockId b) {
  Row& r = row(b.value % kRows);
  auto at =
      std::ranges::find_if(r.ways, [&](const Entry& e) { return e.used && e.block == b.value; });
  if (at == r.ways.end()) {
    at = std::prev(r.ways.end());
    overflowed_ |= at->used;
    *at = {.block = b.value, .used = true};
  }
  std::rotate(r.ways.begin(), at, at + 1);
  return r.ways.front();
}

void BlockTable::follow(BlockId b, BlockId next) {
  Entry& e = entry(b);
  const auto begin = e.next.begin();
  auto at = std::find(begin, begin + e.count, next.value);
  if (at == begin + e.count) {
    if (e.count < kSuccessors) ++e.count;
    at = begin + e.count - 1;
    *at = next.value;
  }
  std::rotate(begin, at, at + 1);
}

void BlockTable::record(BlockId b, std::optional<BlockId> last) {
  const bool known = holds(b);
  entry(b);
  if (last) {
    follow(*last, b);
    if (!known && last == end_) end_ = b;
  } else if (!known) {
    if (start_ && *start_ != b) follow(b, *start_);
    start_ = b;
    if (!end_) end_ = b;
  }
}

std::size_t ExecutionTable::Hash::operator()(const Ids& ids) const {
  std::uint64_t h = 0;
  for (std::uint32_t id : ids) h = std::rotl((h ^ id) * 0x9e3779b97f4a7c15, 29);
  return h;
}

}  // namespace sentinel::plan
