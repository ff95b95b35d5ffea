// What is known of tensors that can be made again: their versions, the recipes that made them,
// which are lost, which the program has freed although a chain still reads them; and from that,
// what has to be replayed before something happens. See docs/design/replays.md.
//
// A chain is found anew at each question, from what is there then: where an input is lost, dead or
// overwritten, its maker is part of the chain. So a tensor may be freed or written as long as the
// chains of what is lost do without it.
//
// It runs nothing and knows no memory. Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/replay/recipe.h"

namespace sentinel {

class Replays {
 public:
  static constexpr std::size_t kMostRecipes = 64;  // of a tensor that may be lost

  using Numbers = std::span<const TensorNumber>;

  // A chain to run, and what it is run for.
  struct Run {
    struct Target {
      TensorNumber number = 0;
      std::uintptr_t address = 0;
      std::uint64_t bytes = 0;
      std::optional<ContentHash> hash;
      const char* op = "";  // that made it
    };
    std::vector<std::shared_ptr<Recipe>> recipes;  // in order
    std::vector<Target> targets;
    std::vector<TensorNumber> inputs;  // sorted; read at their addresses
  };

  // --- what ops do

  // An op begins; `newest` is the highest number so far.
  void op_begins(TensorNumber newest) { newest_ = newest, written_.clear(); }
  // That tensor lives, and may be of a recipe.
  void know(TensorNumber, std::uintptr_t address, std::uint64_t bytes);
  bool knows(TensorNumber number) const { return known_.contains(number); }
  // Its bytes where they lie. It is known.
  std::span<const std::byte> contents(TensorNumber) const;
  // The running op writes it. Counted once an op.
  void writes(TensorNumber);
  // The running op has a recipe. What it writes without having made it, it reads too. Null: with
  // these tensors it is of no use, and has been dropped.
  std::shared_ptr<Recipe> note(void* handle, const char* op, Numbers read, Numbers written,
                               bool trusted = true);

  // The program may write to it past all ops: until it dies, or until the step ends. No chain reads
  // it, and it is not lost.
  void reach(TensorNumber, bool lasting);
  bool any_reached() const { return !reached_.empty(); }

  // --- what is lost

  bool may_lose(TensorNumber) const;
  void lose(TensorNumber, const std::optional<ContentHash>&);
  bool lost(TensorNumber) const;
  bool any_lost() const { return !lost_.empty(); }
  std::vector<TensorNumber> all_lost() const;  // those that were made first, first
  // The lost tensors that lie there, or partly there.
  std::vector<TensorNumber> lost_in(std::uintptr_t address, std::uint64_t bytes) const;
  // What has to be remade before all of these are written or lost.
  std::vector<TensorNumber> threatened(Numbers) const;
  // An op writes all of it: nobody makes it again.
  void overwritten(TensorNumber number) { is_lost_no_more(number); }

  const char* maker_of(TensorNumber) const;  // the op's name; null: no recipe makes it
  Recipe* recipe_of(TensorNumber) const;     // of its current contents, or null

  // --- what dies

  // The program frees it. True: it is an orphan, whose memory is still needed.
  bool dies(TensorNumber);
  bool orphan(TensorNumber) const;
  // Addresses of orphans that nothing needs any more.
  std::vector<std::uintptr_t> take_unneeded();

  // --- runs

  // The targets in the runs in which they take the least memory: each finds those of the runs
  // before it made, and no recipe runs twice. In order. plan::replay_runs() is of the same rule.
  std::vector<std::vector<TensorNumber>> in_runs(Numbers targets) const;
  // Empty: no recipes make them.
  std::optional<Run> run_for(Numbers targets) const;
  // Makes what the recipe has made, as if that were lost.
  std::optional<Run> trial_of(const Recipe&) const;
  void begin(const Run&);
  void end(Run);  // its targets are lost no more
  std::size_t running() const { return running_; }
  bool busy(TensorNumber) const;  // a run reads it, or makes it

  // A step is over, or recipes have ceased to be kept. Nothing is lost and nothing runs.
  void forget(TensorNumber newest);
  // The adaptor's parts of recipes that nobody needs any more.
  std::vector<void*> take_dropped();

 private:
  struct Known {
    std::uintptr_t address = 0;
    std::uint64_t bytes = 0, version = 0;
    std::shared_ptr<Recipe> maker;  // of the current version
    bool lost = false, orphan = false;
    std::uint32_t readers = 0, makers = 0;  // runs
    std::optional<ContentHash> hash;        // of a lost one, in hashed steps
    std::vector<TensorNumber> inputs;       // of its chain, sorted
  };
  struct Chain {
    std::vector<std::shared_ptr<Recipe>> recipes;
    std::vector<TensorNumber> inputs;
  };

  Contents before_op(TensorNumber, const Known&) const;
  bool has_inputs(Recipe&, Numbers read, Numbers written) const;
  bool is_there(const Contents&, Numbers gone, Numbers back) const;
  bool is_own_statistic(const Recipe&, const Contents&, Numbers gone) const;
  // With what is gone by then, and what is back.
  std::optional<Chain> chain(Numbers wanted, Numbers gone, std::size_t most,
                             Numbers back = {}) const;
  void sort_by_maker(std::vector<TensorNumber>&) const;
  void find_other_inputs(TensorNumber gone);
  void is_lost_no_more(TensorNumber);

  std::unordered_map<TensorNumber, Known> known_;
  std::vector<TensorNumber> lost_, orphans_;
  std::unordered_map<TensorNumber, bool> reached_;      // true: until it dies
  std::unordered_map<TensorNumber, Contents> written_;  // by the running op: what was there before
  TensorNumber newest_ = 0;                             // before the running op
  TensorNumber before_step_ = 0;                        // newest before it
  std::uint64_t recipes_ = 0;                           // so far
  std::size_t running_ = 0;
  std::shared_ptr<std::vector<void*>> dropped_ = std::make_shared<std::vector<void*>>();
};

}  // namespace sentinel
