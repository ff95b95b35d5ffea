// DeepUM: Tensor Migration and Prefetching in Unified Memory (ASPLOS 2023).
//
// Modelled, online and without a profile: execution IDs from the kernel's name and arguments
// (section 3.1); the execution table and a block table for each ID (4.2), 2048 rows, 2 ways, 4
// successors, one level; chaining from the faulted block through successors to the end block and on
// from the start block of the next predicted kernel, as far as `look_ahead` kernels (32, its
// Figure 11), until a fault or a kernel that cannot be predicted; faults before commands; victims
// least recently migrated and not predicted, evicted ahead of need (5.1); invalidation of blocks in
// which the framework's allocator has nothing handed out (5.2). A kernel is an op of the profile.
//
// The paper leaves open what happens to start and end when a later execution faults on some blocks
// only; see BlockTable. Where a chain runs dry before it meets the end block (an entry was
// replaced, the fault was on a new block), it goes on with the next kernel as if it had met it. A
// predicted kernel's commands exist from when the chain reaches it, so that a block that comes too
// late is waited for and is no further fault. Without pre-eviction room is made on the critical
// path, in the driver's order: least recently migrated, predicted or not. Left out: the CPU time of
// the driver's threads; bounds of its queues; CUDA's own kernels within an op, which would cut
// large ops into several executions.
#include <algorithm>
#include <deque>

#include "plan/policies/deepum/block_table.h"
#include "plan/seam/victims.h"
#include "sentinel/paging.h"

namespace sentinel::plan {
namespace {

constexpr std::uint32_t kLookAhead = 32;
// Where shapes differ from step to step, kernels are never seen again: with so many the tables
// begin anew.
constexpr std::size_t kMostKernels = 1 << 16;
constexpr std::string_view kPreEviction = "pre-eviction", kInvalidation = "invalidation";
constexpr std::string_view kFeatures[] = {kPreEviction, kInvalidation};

class DeepUmPager final : public Pager {
 public:
  explicit DeepUmPager(const PlanOptions& options)
      : look_ahead_(options.look_ahead == 0 ? kLookAhead : options.look_ahead),
        pre_evicts_(uses(options, kPreEviction)),
        invalidates_(uses(options, kInvalidation)) {}

  void kernel_start(std::uint64_t hash) override;
  void kernel_end() override;
  void touched(BlockId) override;
  void faulted(BlockId) override;
  bool expected(BlockId) const override;
  void arrived(BlockId) override;
  void left(BlockId) override;
  std::optional<BlockId> prefetch(const BlockView&) override;
  std::optional<BlockId> victim(bool pressing) override;
  bool pre_evicts() const override { return pre_evicts_; }
  bool invalidates() const override { return invalidates_; }
  std::uint64_t table_bytes() const override {
    return tables_.size() * BlockTable::kBytes + executions_.bytes();
  }
  std::uint64_t conflict_misses() const override { return conflict_misses_; }

 private:
  using Marks = std::vector<std::uint64_t>;  // by block
  // The running kernel, or one that is predicted to run: the blocks it will need, in the order in
  // which they are fetched.
  struct Execution {
    std::uint32_t id = 0;
    std::vector<BlockId> blocks;
    std::size_t given = 0;  // commands for so many exist
  };

  std::uint32_t execution_id(std::uint64_t hash);
  void forget();
  void enter(std::uint32_t id);
  void retire();  // the first of the window
  void follow_chain(const BlockTable&, BlockId from, Marks&, std::uint64_t with,
                    std::vector<BlockId>& blocks);
  void extend();
  ExecutionTable::Ids tail() const;
  static bool mark(Marks&, BlockId, std::uint64_t with);

  std::uint32_t look_ahead_;
  bool pre_evicts_, invalidates_;
  std::unordered_map<std::uint64_t, std::uint32_t> ids_;
  std::vector<BlockTable> tables_;  // by execution ID
  ExecutionTable executions_;
  std::deque<std::uint32_t> past_;  // before the running kernel, at most three
  std::deque<Execution> window_;    // the running kernel, then the predicted ones
  std::size_t giving_ = 0;          // in the window: all before have been given
  bool chaining_ = false;
  std::optional<BlockId> last_fault_;  // of the running kernel
  Marks met_;                          // in which walk along a chain
  Marks expected_;                     // for which execution
  std::uint64_t walk_ = 0, execution_ = 0;
  std::uint64_t conflict_misses_ = 0;
  Victims migrated_;  // by last migration
  Victims idle_;      // the same, predicted ones held
};

std::uint32_t DeepUmPager::execution_id(std::uint64_t hash) {
  const auto [at, made] = ids_.try_emplace(hash, static_cast<std::uint32_t>(tables_.size()));
  if (made) tables_.emplace_back();
  return at->second;
}

void DeepUmPager::forget() {
  while (!window_.empty()) retire();
  past_.clear();
  ids_.clear();
  tables_.clear();
  executions_ = {};
}

void DeepUmPager::retire() {
  for (BlockId b : window_.front().blocks) idle_.release(b);
  window_.pop_front();
  giving_ -= giving_ > 0 ? 1 : 0;
}

// The last of the window with the three before it.
ExecutionTable::Ids DeepUmPager::tail() const {
  ExecutionTable::Ids ids;
  ids.fill(UINT32_MAX);
  std::size_t at = ids.size();
  for (auto e = window_.rbegin(); e != window_.rend() && at > 0; ++e) ids[--at] = e->id;
  for (auto p = past_.rbegin(); p != past_.rend() && at > 0; ++p) ids[--at] = *p;
  return ids;
}

// A kernel that was not predicted makes what was predicted worthless.
void DeepUmPager::enter(std::uint32_t id) {
  if (window_.size() > 1 && window_[1].id == id) {
    retire();
    return;
  }
  while (!window_.empty()) retire();
  window_.push_back({.id = id, .blocks = {}});
  chaining_ = false;
}

void DeepUmPager::kernel_start(std::uint64_t hash) {
  if (std::max(tables_.size(), executions_.size()) >= kMostKernels) forget();
  const std::uint32_t id = execution_id(hash);
  if (!window_.empty()) {
    ExecutionTable::Ids before;
    before.fill(UINT32_MAX);
    before.back() = window_.front().id;
    std::ranges::copy(past_, before.end() - 1 - static_cast<std::ptrdiff_t>(past_.size()));
    executions_.record(before, id);
    past_.push_back(window_.front().id);
    if (past_.size() > 3) past_.pop_front();
  }
  enter(id);
  last_fault_.reset();
  ++execution_;
  for (BlockId b : window_.front().blocks) mark(expected_, b, execution_);
  extend();
}

void DeepUmPager::kernel_end() {
  migrated_.end_use();
  idle_.end_use();
}

void DeepUmPager::touched(BlockId b) {
  migrated_.use(b);
  idle_.use(b);
}

bool DeepUmPager::expected(BlockId b) const {
  return b.index() < expected_.size() && expected_[b.index()] == execution_;
}

// Whether the block's mark was another one.
bool DeepUmPager::mark(Marks& marks, BlockId b, std::uint64_t with) {
  if (b.index() >= marks.size()) marks.resize(2 * b.index() + 1);
  return std::exchange(marks[b.index()], with) != with;
}

// Appends `from` and what is reached from it, breadth first, up to the end block and not beyond
// what is marked already.
void DeepUmPager::follow_chain(const BlockTable& table, BlockId from, Marks& marks,
                               std::uint64_t with, std::vector<BlockId>& blocks) {
  const auto reach = [&](BlockId b) {
    if (!mark(marks, b, with)) return;
    blocks.push_back(b);
    idle_.hold(b);
  };
  std::size_t at = blocks.size();
  reach(from);
  bool ended = from == table.end();
  for (; at < blocks.size() && !ended; ++at)
    table.successors(blocks[at], [&](BlockId next) {
      reach(next);
      ended |= next == table.end();
    });
}

// Chaining goes on until it is as far ahead as it may be, or does not know what comes next.
void DeepUmPager::extend() {
  while (chaining_ && window_.size() <= look_ahead_) {
    const auto next = executions_.predict(tail());
    chaining_ = next.has_value();
    if (!next) return;
    window_.push_back({.id = *next, .blocks = {}});
    const BlockTable& table = tables_[*next];
    if (table.start()) follow_chain(table, *table.start(), met_, ++walk_, window_.back().blocks);
  }
}

// The chain starts anew from here. What was predicted for the kernels to come still holds, as it
// follows from the order of kernels alone; their commands are given again.
void DeepUmPager::faulted(BlockId b) {
  Execution& running = window_.front();
  BlockTable& table = tables_[running.id];
  follow_chain(table, b, expected_, execution_, running.blocks);
  table.record(b, last_fault_);
  last_fault_ = b;
  conflict_misses_ += table.overflowed() ? 1 : 0;
  for (Execution& e : window_) e.given = 0;
  giving_ = 0;
  chaining_ = true;
  extend();
}

void DeepUmPager::arrived(BlockId b) {
  migrated_.arrive(b);
  idle_.arrive(b);
}

void DeepUmPager::left(BlockId b) {
  migrated_.leave(b);
  idle_.leave(b);
}

std::optional<BlockId> DeepUmPager::prefetch(const BlockView& blocks) {
  for (; giving_ < window_.size(); ++giving_) {
    Execution& e = window_[giving_];
    while (e.given < e.blocks.size()) {
      const BlockId b = e.blocks[e.given++];
      if (!blocks.present(b)) return b;
    }
  }
  return std::nullopt;
}

std::optional<BlockId> DeepUmPager::victim(bool pressing) {
  if (pre_evicts_) {
    if (const auto b = idle_.take()) {
      migrated_.leave(*b);
      return b;
    }
    if (!pressing) return std::nullopt;
  }
  auto b = migrated_.take();
  if (!b) b = migrated_.take_used();
  if (b) idle_.leave(*b);
  return b;
}

class DeepUm final : public PagedPolicy {
 public:
  std::string_view name() const override { return "deepum"; }
  std::span<const std::string_view> features() const override { return kFeatures; }
  std::unique_ptr<Pager> prepare(const Machine&, const PlanOptions& options) override {
    check_features(*this, options);
    return std::make_unique<DeepUmPager>(options);
  }
};

}  // namespace

std::unique_ptr<Policy> make_deepum() { return std::make_unique<DeepUm>(); }

}  // namespace sentinel::plan
