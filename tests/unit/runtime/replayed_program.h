// Programs of byte functions, run twice: in plain memory, and in an engine where contents are given
// up and made again at random places. Each word that an op makes is a hash of words that it reads,
// so a wrong byte anywhere makes all that comes of it wrong.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/units.h"
#include "engine/engine.h"
#include "runtime/replay/remaking.h"
#include "runtime/step/device_lane.h"
#include "runtime/step/space.h"
#include "sentinel/adaptor.h"

namespace sentinel::test {

using Word = std::uint64_t;

// Where kernels run: at once, in the calling thread.
class Computer {
 public:
  using Uses = std::vector<std::pair<std::uintptr_t, std::uint64_t>>;

  virtual ~Computer() = default;
  // An op is going to use these.
  virtual void bring(const Uses&) {}
  virtual void launch(const Uses&, const std::function<void()>& kernel) { kernel(); }
  // All of it is over, and the host may read these.
  virtual void show(const Uses&) {}
};

// What an op computes: `seed` chooses the function, `offsets` are views of what is read. The first
// `updates` of the outputs are read as well.
struct ByteOp {
  struct Operand {
    std::uint64_t number = 0;
    Word* address = nullptr;
    std::size_t words = 0, offset = 0;
  };
  std::uint64_t seed = 0;
  bool unsteady = false;  // no two runs make the same
  std::vector<Operand> in, out;
  std::size_t updates = 0;

  static void compute(const ByteOp& op, const std::vector<const Word*>& in,
                      const std::vector<Word*>& out) {
    for (std::size_t o = 0; o < out.size(); ++o) {
      const bool updates = o < op.updates;
      for (std::size_t i = 0; i < op.out[o].words; ++i)
        out[o][i] = ((updates ? out[o][i] : i) + op.seed + o) * 0x9e3779b97f4a7c15ull;
      for (std::size_t n = 0; n < in.size(); ++n) {
        const auto offset = op.in[n].offset;
        const auto words = std::min(op.out[o].words, op.in[n].words - offset);
        for (std::size_t i = 0; i < words; ++i) {
          const auto word = out[o][i] ^ in[n][i + offset];
          out[o][i] = (word ^ word >> 29) * 0xbf58476d1ce4e5b9ull;
        }
      }
    }
  }
  // What an update reads is from before it.
  static void compute_apart(const ByteOp& op, const std::vector<const Word*>& in,
                            const std::vector<Word*>& out) {
    std::vector<std::vector<Word>> copies;
    std::vector<const Word*> read;
    for (std::size_t n = 0; n < in.size(); ++n) copies.emplace_back(in[n], in[n] + op.in[n].words);
    for (const auto& copy : copies) read.push_back(copy.data());
    compute(op, read, out);
  }
};

// The adaptor: its recipes are ByteOps.
struct ByteReplayer {
  static inline std::atomic<std::int64_t> recipes = 0;  // that the core has

  static int replay(void* const* handles, std::size_t count, sentinel_give give, void* context) {
    std::map<std::uint64_t, std::vector<Word>> scratch;
    for (std::size_t r = 0; r < count; ++r) {
      auto& op = *static_cast<ByteOp*>(handles[r]);
      if (op.unsteady) ++op.seed;             // else another thread may replay it at the same time
      std::vector<std::vector<Word>> copies;  // what an update reads is from before it
      std::vector<const Word*> in;
      std::vector<Word*> out;
      for (std::size_t o = 0; o < op.out.size(); ++o) {
        const auto& each = op.out[o];
        auto [at, added] = scratch.try_emplace(each.number, each.words);
        if (added && o < op.updates) std::copy_n(each.address, each.words, at->second.begin());
      }
      for (const auto& each : op.in) {
        const auto at = scratch.find(each.number);
        const auto* words = at != scratch.end() ? at->second.data() : each.address;
        copies.emplace_back(words, words + each.words);
      }
      for (const auto& copy : copies) in.push_back(copy.data());
      for (const auto& each : op.out) out.push_back(scratch.at(each.number).data());
      ByteOp::compute(op, in, out);
    }
    for (const auto& [number, words] : scratch)
      give(context, number, words.data(), words.size() * sizeof(Word));
    return 0;
  }
  static void drop(void* handle) {
    --recipes;
    delete static_cast<ByteOp*>(handle);
  }
  static const sentinel_replayer& functions() {
    static const sentinel_replayer replayer{.replay = replay, .drop = drop};
    return replayer;
  }
};

struct ProgramOptions {
  std::size_t steps = 2, ops = 14, persistent = 3;
  std::size_t least_words = 0, most_words = 0;  // of a tensor
  bool touches = false;                         // from another thread, of what no op named
  bool unsteady = false;                        // some ops never make the same twice
  bool reaches = false;                         // the program writes past ops, and says so
  bool writes_raw = false;                      // it does so to what an op has just made
  bool moves = false;                           // tensors are sent away and brought back as well
};

// What a program runs in. Never destroyed where a thread of the remaking's may serve touches.
struct Remade {
  explicit Remade(Engine& engine, const sentinel_replayer& replayer, OpOrder order,
                  const std::string& inject = "")
      : engine(engine),
        space(engine),
        lane(engine),
        remaking(engine, space, lane, lock, order, inject) {
    remaking.use(replayer);
  }
  Engine& engine;
  std::mutex lock;
  Space space;
  DeviceLane lane;
  Remaking remaking;
  Computer at_once;
  Computer* computer = &at_once;
};

class ReplayedProgram {
 public:
  ReplayedProgram(Remade& remade, const ProgramOptions& options, std::uint64_t seed)
      : engine_(remade.engine),
        space_(remade.space),
        lane_(remade.lane),
        lock_(remade.lock),
        remaking_(remade.remaking),
        computer_(*remade.computer),
        options_(options),
        random_(seed),
        roles_(seed << 32) {}

  // True: all was right.
  bool run() {
    for (std::size_t i = 0; i < options_.persistent; ++i) persist();
    for (std::size_t step = 0; step < options_.steps; ++step) {
      for (std::size_t op = 0; op < options_.ops; ++op) {
        one_op();
        if (chance(6)) free_one();
        if (chance(40)) fork();
        if (options_.reaches && chance(4)) write_past_ops(below(tensors_.size()));
      }
      remaking_.step_ends();
      for (const auto& tensor : tensors_) right_ &= is_right(tensor);
      while (tensors_.size() > options_.persistent) free(tensors_.size() - 1);
    }
    remaking_.all_there();
    while (!tensors_.empty()) free(tensors_.size() - 1);
    return right_;
  }

 private:
  struct Tensor {
    LiveTensor live;
    std::vector<Word> plain;  // the same in plain memory
    Word* words() const { return reinterpret_cast<Word*>(live.address); }
    std::pair<std::uintptr_t, std::uint64_t> place() const { return {live.address, live.bytes}; }
  };

  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }
  bool chance(std::size_t in) { return below(in) == 0; }
  bool is_right(const Tensor& tensor) const {
    computer_.show({tensor.place()});
    return std::memcmp(tensor.words(), tensor.plain.data(), tensor.plain.size() * sizeof(Word)) ==
           0;
  }

  Tensor make() {
    auto words = options_.least_words + below(options_.most_words - options_.least_words);
    if (!engine_.guarded()) words = round_up(words, engine_.alignment() / sizeof(Word));
    Tensor tensor;
    {
      const std::lock_guard guard(lock_);
      tensor.live = *space_.allocate(words * sizeof(Word), LiveTensor::kUnplanned, false);
    }
    tensor.plain.resize(words);
    computer_.launch({tensor.place()},
                     [at = tensor.words(), words] { std::memset(at, 0, words * sizeof(Word)); });
    return tensor;
  }

  void persist() {
    engine_.tick();
    auto tensor = make();
    for (std::size_t i = 0; i < tensor.plain.size(); ++i) tensor.plain[i] = random_();
    computer_.launch({tensor.place()}, [plain = tensor.plain, at = tensor.words()] {
      std::copy(plain.begin(), plain.end(), at);
    });
    tensors_.push_back(std::move(tensor));
  }

  // As Session::release().
  void free(std::size_t at) {
    const std::lock_guard guard(lock_);
    const auto live = tensors_[at].live;
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(at));
    if (!remaking_.dies(live)) space_.release(live.address);
  }
  void free_one() {
    if (tensors_.size() > options_.persistent)
      free(options_.persistent + below(tensors_.size() - options_.persistent));
  }

  void fork() {
    remaking_.settle(true);
    const auto guard = remaking_.all_there();
    for (const auto& tensor : tensors_) right_ &= is_right(tensor);
    remaking_.settle(false);
  }

  // As numpy() is called on a tensor, and its array written to: then, and at any time after.
  void write_past_ops(std::size_t at) {
    const auto& live = tensors_[at].live;
    remaking_.reach(live, true);
    reached_.insert(live.birth);
    write_reached();
  }
  void write_reached() {
    for (auto& tensor : tensors_) {
      if (!reached_.contains(tensor.live.birth)) continue;
      write_one_word(tensor);
    }
  }
  void write_one_word(Tensor& tensor) {
    const auto word = below(tensor.plain.size());
    const auto value = tensor.plain[word] = random_();
    engine_.tick();
    computer_.bring({tensor.place()});
    computer_.launch({tensor.place()}, [at = tensor.words() + word, value] { *at = value; });
  }

  // Calls as the session makes them at an op.
  void one_op() {
    Remaking::Op running;
    DeviceLane::Op launch;
    {
      const std::lock_guard guard(lock_);
      lane_.begin(launch);
      remaking_.op_begins(running, "mix", true, options_.unsteady ? ++roles_ : 0);
    }
    if (chance(3)) remaking_.remake(numbers(below(tensors_.size())));  // planned
    ByteOp op{.seed = random_(), .unsteady = options_.unsteady && chance(4)};
    std::vector<std::size_t> read, written;
    for (std::size_t n = 1 + below(2); n > 0; --n) read.push_back(below(tensors_.size()));
    if (chance(3)) written.push_back(below(tensors_.size()));
    op.updates = written.size();
    const bool overwrites =
        op.updates == 1 && std::ranges::find(read, written[0]) == read.end() && chance(3);
    if (overwrites) op.updates = 0;
    Computer::Uses uses;
    for (const auto& some : {read, written})
      for (const auto at : some) uses.push_back(tensors_[at].place());
    {
      const std::lock_guard guard(lock_);
      lane_.use(launch);
      for (const auto& [address, bytes] : uses) engine_.touch(address, bytes);
      for (const auto at : read) remaking_.names(running, tensors_[at].live, false, false);
      for (const auto at : written) remaking_.names(running, tensors_[at].live, true, overwrites);
    }
    remaking_.op_runs(
        running, [this](LiveTensor& tensor) { engine_.overwrite(tensor.address, tensor.bytes); });
    computer_.bring(uses);
    std::optional<std::thread> toucher;
    bool touched_right = true;
    const auto touched = below(tensors_.size());
    if (options_.touches && chance(2) && std::ranges::find(written, touched) == written.end())
      toucher.emplace([&, tensor = &tensors_[touched]] { touched_right = is_right(*tensor); });
    const auto known = tensors_.size();
    std::vector<Tensor> made;
    for (std::size_t n = written.empty() ? 1 + below(2) : below(2); n > 0; --n)
      made.push_back(make());
    compute(op, read, written, made);
    if (toucher) toucher->join();
    right_ &= touched_right;
    tensors_.insert(tensors_.end(), std::make_move_iterator(made.begin()),
                    std::make_move_iterator(made.end()));
    for (auto at = known; at < tensors_.size(); ++at) written.push_back(at);
    end_op(running, launch, op, read, written, known);
    write_reached();
    for (const auto& tensor : tensors_)
      if (options_.moves && chance(6)) move(tensor.live);
  }

  void compute(const ByteOp& op, const std::vector<std::size_t>& read,
               const std::vector<std::size_t>& written, std::vector<Tensor>& made) {
    for (const bool plain : {true, false}) {
      ByteOp sized = op;
      std::vector<const Word*> in;
      std::vector<Word*> out;
      Computer::Uses uses;
      for (const auto at : read) {
        auto& tensor = tensors_[at];
        in.push_back(plain ? tensor.plain.data() : tensor.words());
        sized.in.push_back(operand(tensor, op.seed));
        uses.push_back(tensor.place());
      }
      const auto writes = [&](Tensor& tensor) {
        sized.out.push_back(operand(tensor, 0));
        out.push_back(plain ? tensor.plain.data() : tensor.words());
        uses.push_back(tensor.place());
      };
      for (const auto at : written) writes(tensors_[at]);
      for (auto& tensor : made) writes(tensor);
      if (plain)
        ByteOp::compute_apart(sized, in, out);
      else
        computer_.launch(uses, [sized, in, out] { ByteOp::compute_apart(sized, in, out); });
    }
  }
  // As without a plan, by demand.
  void move(const LiveTensor& tensor) {
    const std::lock_guard guard(lock_);
    auto* live = space_.find(reinterpret_cast<const void*>(tensor.address));
    live->wanted = !live->wanted;
    live->wanted ? engine_.promote(tensor.address, tensor.bytes)
                 : engine_.demote(tensor.address, tensor.bytes);
  }

  static ByteOp::Operand operand(const Tensor& tensor, std::uint64_t seed) {
    return {.number = tensor.live.birth + 1,
            .address = tensor.words(),
            .words = tensor.plain.size(),
            .offset = seed % (tensor.plain.size() / 2)};
  }

  // Of the tensors behind `known`, which the op has made, and before anybody uses them.
  void write_raw(std::size_t known) {
    for (auto at = known; at < tensors_.size(); ++at) write_one_word(tensors_[at]);
  }

  void end_op(Remaking::Op& running, DeviceLane::Op& launch, const ByteOp& op,
              const std::vector<std::size_t>& read, const std::vector<std::size_t>& written,
              std::size_t known) {
    if (!chance(5)) {  // else nobody can describe it
      auto* recipe = new ByteOp(op);
      std::vector<std::uint64_t> in, out;
      const std::lock_guard guard(lock_);
      for (const auto at : read) {
        recipe->in.push_back(operand(tensors_[at], op.seed));
        in.push_back(remaking_.number(tensors_[at].live));
      }
      for (const auto at : written) {
        recipe->out.push_back(operand(tensors_[at], 0));
        out.push_back(remaking_.number(tensors_[at].live));
      }
      ++ByteReplayer::recipes;
      remaking_.note(recipe, running, in, out);
    }
    {
      const std::lock_guard guard(lock_);
      for (const auto at : written) remaking_.names(running, tensors_[at].live, true, false);
      remaking_.op_computed(running);
      remaking_.op_closes(running);
      lane_.end(launch);
    }
    if (options_.writes_raw && chance(3)) {
      remaking_.op_ended(running);
      write_raw(known);
    }
    for (const auto& tensor : tensors_)
      if (chance(3)) running.discards.push_back({tensor.live, {}});
    remaking_.op_ended(running);
  }

  std::vector<TensorNumber> numbers(std::size_t count) {
    std::vector<TensorNumber> some;
    for (; count > 0; --count) some.push_back(tensors_[below(tensors_.size())].live.birth + 1);
    return some;
  }

  Engine& engine_;
  Space& space_;
  DeviceLane& lane_;
  std::mutex& lock_;
  Remaking& remaking_;
  Computer& computer_;
  const ProgramOptions options_;
  std::mt19937_64 random_;
  std::uint64_t roles_;  // so far
  std::vector<Tensor> tensors_;
  std::set<std::uint64_t> reached_;  // births
  bool right_ = true;
};

}  // namespace sentinel::test
