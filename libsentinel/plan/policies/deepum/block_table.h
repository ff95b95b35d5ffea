// DeepUM's tables (ASPLOS 2023, section 4.2): which blocks a kernel touched after which, and which
// kernel followed which.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sentinel/paging.h"

namespace sentinel::plan {

// The UM block correlation table of one kernel: per faulted block the blocks that faulted right
// after it, most recent first; one level, as chaining follows the successors.
//
// The paper's table is an array of kRows sets of kWays entries. Here only sets in use are stored,
// so that a kernel of few blocks costs little; what maps to the same set is as in the array.
class BlockTable {
 public:
  static constexpr std::uint32_t kRows = 2048, kWays = 2, kSuccessors = 4;
  // Of the paper's array: a tag and the successors for each way, start and end.
  static constexpr std::uint64_t kBytes = (kRows * kWays * (1 + kSuccessors) + 2) * 8ull;

  // A fault on `b`; `last` faulted before it in the same execution of the kernel.
  void record(BlockId b, std::optional<BlockId> last);
  bool holds(BlockId b) const { return find(b) != nullptr; }

  // Successors of `b`, most recent first; empty where there is no entry.
  template <class Visit>
  void successors(BlockId b, Visit visit) const {
    if (const Entry* e = find(b))
      for (std::uint32_t i = 0; i < e->count; ++i) visit(BlockId(e->next[i]));
  }

  // Where chaining begins and ends. An execution that misses only blocks the table holds leaves
  // both: most of what it needed had been prefetched. A block that is new and faults first comes
  // before the start; one that is new and follows the end becomes the end.
  std::optional<BlockId> start() const { return start_; }
  std::optional<BlockId> end() const { return end_; }

  bool overflowed() const { return overflowed_; }  // an entry was replaced: not all blocks fit

 private:
  struct Entry {
    std::uint32_t block = 0;
    std::uint32_t count = 0;  // of successors
    std::array<std::uint32_t, kSuccessors> next{};
    bool used = false;
  };
  struct Row {
    std::uint32_t index = kFree;
    std::array<Entry, kWays> ways{};  // most recently used first
  };
  static constexpr std::uint32_t kFree = UINT32_MAX;

  const Entry* find(BlockId) const;
  Entry& entry(BlockId);
  Row& row(std::uint32_t index);
  void grow();
  void follow(BlockId b, BlockId next);

  std::vector<Row> rows_;  // open addressing by row index; in place once as many as kRows
  std::uint32_t used_rows_ = 0;
  std::optional<BlockId> start_, end_;
  bool overflowed_ = false;
};

// The execution ID correlation table: what ran after a kernel, by the three kernels before it.
class ExecutionTable {
 public:
  using Ids = std::array<std::uint32_t, 4>;  // three before, oldest first, and the kernel itself

  void record(const Ids& ids, std::uint32_t next) { next_[ids] = next; }
  std::optional<std::uint32_t> predict(const Ids& ids) const {
    const auto found = next_.find(ids);
    return found == next_.end() ? std::nullopt : std::optional(found->second);
  }
  std::size_t size() const { return next_.size(); }
  std::uint64_t bytes() const { return size() * 4 * 4; }  // records of four IDs

 private:
  struct Hash {
    std::size_t operator()(const Ids& ids) const;
  };
  std::unordered_map<Ids, std::uint32_t, Hash> next_;
};

}  // namespace sentinel::plan
