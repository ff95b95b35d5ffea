// Gives tensors' contents up and makes them again: runs chains (replays.h) by the adaptor's
// replayer, compares hashes, and refills the engine's blocks. A thread of its own serves touches of
// lost blocks that no op named.
//
// Takes the session's lock itself, but where it says that the caller holds it; a chain runs without
// it. Two threads may replay at the same time, never the same tensor: the second waits for the
// first. What cannot be made again as it was ends the process with 125.
//
// On a device no touch waits for a replay, so every operand is made again before its op is
// launched, on the stream of the thread that launches. The host waits for the bytes in hashed steps
// alone. Ops come in any order there: what runs at the same time as another op has no recipe.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "alloc/address_table.h"
#include "capture/recorder.h"
#include "engine/engine.h"
#include "runtime/limit/summary.h"
#include "runtime/replay/host_view.h"
#include "runtime/replay/replays.h"
#include "runtime/replay/spoiling.h"
#include "runtime/step/device_lane.h"
#include "runtime/step/space.h"
#include "sentinel/adaptor.h"

namespace sentinel {

struct ReplayCounters {       // since the session began
  std::uint64_t replays = 0;  // ops that were run again, but for trials
  std::uint64_t replayed_bytes = 0, discarded_bytes = 0;
  double us = 0;  // in replays and trials, all threads together
};

class Remaking final : public Remaker {
 public:
  using Guard = std::unique_lock<std::mutex>;

  // All but the text outlive it. `lock`: the session's. `inject`: see spoiling.h.
  Remaking(Engine&, Space&, DeviceLane&, std::mutex& lock, OpOrder, const std::string& inject);

  // The adaptor can replay. Before the first step.
  void use(const sentinel_replayer&);
  // Whether tensors can be discarded and made again here: by this adaptor, in this engine.
  bool possible() const { return replayer_.load() != nullptr; }
  // Besides, whether the adaptor can describe ops by the settings of now.
  bool possible_now() const {
    const auto* replayer = replayer_.load();
    return replayer != nullptr && (replayer->able == nullptr || replayer->able() != 0);
  }
  // The plan in use replays ops: they have to name what they use. Takes no lock.
  bool follows() const { return follows_.load(std::memory_order_relaxed); }
  static bool replays_here();                           // the calling thread does now
  void soil(void* memory, std::size_t bytes) noexcept;  // that a trial was given just now

  struct Discard {
    LiveTensor tensor;
    Engine::Ends ends;
  };

  // One thread's op.
  struct Op {
    const char* name = "";
    std::vector<TensorNumber> lost, written;  // named since it began, or was told to run
    std::vector<LiveTensor> overwritten;      // wholly, once it runs
    std::vector<Discard> discards;            // at its end
    bool replayed = false;                    // by the plan
    bool open = false;                        // it has begun, and has not computed
    std::uint64_t role = 0;                   // the same in each step
    std::shared_ptr<Recipe> untried;          // its recipe, where no op of its role had one before
  };

  // --- the caller holds the lock
  void op_begins(Op&, const char* name, bool follows, std::uint64_t role = 0);
  bool repeats(std::uint64_t role) const;  // as far as is known
  // True: it is overwritten wholly, and overwrite() is called when the op runs.
  bool names(Op&, const LiveTensor&, bool writes, bool overwrites);
  void names_part(Op&, std::uintptr_t address, std::uint64_t bytes);  // of any tensors
  void op_computed(Op&);
  void op_closes(Op&);                                  // whether it has followed a plan or not
  bool is_in_op() const { return overlap_.open != 0; }  // some thread
  TensorNumber number(const LiveTensor&);
  void note(void* recipe, Op&, Replays::Numbers read, Replays::Numbers written);
  // Something is known of tensors that outlives plans: what the program has reached.
  bool any_reached() const { return replays_.any_reached(); }
  // The program frees it. True: its memory is still needed, and is freed later.
  bool dies(const LiveTensor& tensor) { return replays_.dies(number_of(tensor)); }
  bool orphan(const LiveTensor& tensor) const { return replays_.orphan(number_of(tensor)); }
  const ReplayCounters& counters() const { return counters_; }
  const ReplayTrials& trials() const { return trials_; }

  // --- the caller does not
  void settle(bool settles) { settles_ = settles; }  // nothing becomes lost until that ends
  void ends() { follows_ = false; }                  // nothing is lost, or in a forked child
  // Remakes what the op names and is lost, and what could not be remade once it has written.
  // `overwrite` is called with the lock held, for each tensor that the op overwrites.
  template <class Overwrite>
  void op_runs(Op& op, Overwrite overwrite) {
    if (op.lost.empty() && op.written.empty() && op.overwritten.empty()) return;
    auto guard = ready(op);
    for (const auto& tensor : op.overwritten)
      if (auto* now = living(tensor)) {
        overwrite(*now);
        replays_.overwritten(number_of(tensor));
      }
    op.overwritten.clear();
  }
  // Tries its recipe if no op of its role has been tried. Discards what is due; what it cannot is
  // left in `op.discards`. Frees orphans and recipes that nothing needs.
  void op_ended(Op&);
  // Those of the tensors that are lost are remade.
  void remake(Replays::Numbers);
  // The program has its address, and may write there unseen from now on: until it dies, or for the
  // rest of the step. What is made from it is remade before.
  void reach(const LiveTensor&, bool lasting);
  // All is remade, and nothing is known of recipes any more. The lock is held from then on.
  Guard all_there();
  Guard step_ends();  // the same, where a step ends: contents are hashed by whole steps
  void touched(std::uintptr_t address) noexcept override;

 private:
  static constexpr std::uint64_t kHashed = 100;  // on a device one step in so many, and the first

  struct Delivery;
  // Addresses that were touched and not yet seen to. Where they are too many all is remade.
  struct Touches {
    std::mutex lock;  // for a few instructions
    std::condition_variable any;
    std::array<std::uintptr_t, 256> addresses;
    std::size_t count = 0;
  };
  static TensorNumber number_of(const LiveTensor& tensor) { return tensor.birth + 1; }
  LiveTensor* living(const LiveTensor&);
  Guard ready(Op&);
  void remake(Guard&, const std::vector<TensorNumber>&);
  void run_in_parts(Guard&, const std::vector<TensorNumber>&);
  void run(Guard&, const std::vector<TensorNumber>&);
  // Its code, without the lock meanwhile.
  int run(Guard&, Replays::Run, Delivery&);
  int replay(const std::vector<void*>& recipes, Delivery&);
  // Contents that are given up now are hashed, and compared once they are made again.
  bool hashes() const {
    return contents_ == nullptr || hashed_.all || hashed_.borders % kHashed == 0;
  }
  // Runs the recipe while what it made is there: it is trusted if it gives the same bytes.
  void try_out(Op&);
  static void give(void* delivery, std::uint64_t number, const void* bytes, std::size_t size);
  bool discard(const LiveTensor&, Engine::Ends);
  // Whether it holds what its op has made. Else it was written past all ops, as its next ones will
  // be: what its op makes is given up no more.
  bool is_as_made(Guard&, TensorNumber, const ContentHash&);
  bool let_go(Guard&, bool all);
  void serve_touches(Touches&);

  Engine& engine_;
  DeviceContents* const contents_;  // of a device, or null
  const HostView view_;
  Space& space_;
  DeviceLane& lane_;
  std::mutex& lock_;
  const OpOrder order_;
  const bool can_;  // the engine, with ops in this order
  Spoiling spoiling_;
  std::atomic<const sentinel_replayer*> replayer_ = nullptr;
  std::atomic<bool> follows_ = false, settles_ = false;
  // The thread that waits there has its own share: it may outlive this.
  const std::shared_ptr<Touches> touches_ = std::make_shared<Touches>();

  // Guarded by the session's lock.
  Replays replays_;
  std::unordered_map<std::uint64_t, bool> tried_;  // roles of ops: whether they repeat themselves
  std::condition_variable run_over_;
  ReplayCounters counters_;
  ReplayTrials trials_;
  struct Overlap {
    unsigned open = 0;     // ops that have begun and have not computed
    bool crossed = false;  // two were open at once, or one was at a border, and one still is
  } overlap_;
  struct Hashed {
    bool all;                   // steps: `sentinel verify` watches
    bool gave_up = false;       // contents, in this step
    std::uint64_t borders = 0;  // ends of steps in which some were given up
  } hashed_;
};

}  // namespace sentinel
