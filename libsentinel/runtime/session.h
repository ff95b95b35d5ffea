// A session: what Sentinel does in one training process, from the first tensor to the last.
//
//   warm-up -> (counting) profile -> plan -> steady            sentinel run
//   warm-up -> profile -> pager -> steady                      the same, of a policy without plans
//   warm-up -> (counting) profile -> written, then idle        sentinel record
//
// The adaptor reports ops, layers and steps; the session records them, decides when to profile,
// plans, and has the engine move tensors at op boundaries. See DESIGN.md, "Life of a training
// step".
//
// Thread-safe. One thread trains: the one that attached, or last ended a step. Where ops come in
// any order, so does each thread that runs one, as long as it does. What other threads allocate is
// held within the budget, but neither recorded nor planned. One lock, `lock_`, guards all state but
// what is a thread's own; it is taken before the engine's, and never while waiting for a tensor (a
// birth on a GPU that is full waits for what is on its way out).
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/recorder.h"
#include "engine/engine.h"
#include "engine/gpu/driver.h"
#include "engine/gpu/unmanaged.h"
#include "options/options.h"
#include "runtime/bucket.h"
#include "runtime/space.h"
#include "runtime/summary.h"
#include "runtime/watch.h"
#include "sentinel/access_source.h"
#include "sentinel/machine.h"
#include "sentinel/paging.h"

namespace sentinel {

class Session {
 public:
  // Throws Error where the options cannot be met.
  Session(SessionOptions options, std::string framework, OpOrder order);

  void* allocate(std::size_t bytes) noexcept;  // null: why_full() says it
  std::string why_full(std::size_t bytes);
  int gpu() const { return options_.gpu.value_or(-1); }
  struct Memory {
    std::uint64_t live_bytes, most_live_bytes, held_bytes, most_held_bytes, budget_bytes;
  };
  Memory memory(bool reset = false);  // the most alive is what is now, from then on
  bool owns(const void* address) const { return engine_->contains(address); }
  void release(void* address) noexcept;
  // Of another device than the session's. Null: why_unmanaged_full() says it. Throws Error.
  void* allocate_unmanaged(int device, std::size_t bytes);
  std::string why_unmanaged_full(int device, std::size_t bytes);
  void release_unmanaged(int device, void* address) noexcept;
  Memory unmanaged(int device, bool reset = false);

  bool wants_tensors() const {
    return wants_ops() && (wants_tensors_.load(std::memory_order_relaxed) || !engine_->guarded());
  }
  // False, on a GPU: nothing is away, nothing leaves, and nothing is learned of the step, so that
  // ops need not be told. Becomes true at any time, as soon as memory is getting short.
  bool wants_ops() const { return !still_.load(std::memory_order_relaxed); }
  // An op that is not told begins or has ended. False: it may not begin so, for what it uses may be
  // about to leave.
  bool untold(bool begins) noexcept;
  void layer(const char* name, Phase) noexcept;
  void layer_end() noexcept;  // sentinel_add_layer(): the program marks layers itself
  void op_start(const char* name, Phase, const char* layer) noexcept;
  void op_tensor(const void* storage, std::size_t bytes, int access) noexcept;
  void op_run() noexcept;
  void compute_on(void* stream) noexcept;
  void forget_stream(void* stream) noexcept;
  void used_on(const void* storage, void* stream) noexcept;
  bool pin(const void* storage) noexcept;  // whether it was not before
  std::uint64_t device_budget();           // as far as it is known now
  bool device_has_room(std::size_t bytes);  // beside all tensors, whatever the budget
  void op_end() noexcept;
  void step_end() noexcept;

  // On request of the program, in the place of the automatic choice of a step.
  int start_profile();
  int end_profile();

  void model(const char* name, std::size_t batch) noexcept;
  void unsupported(const char* what) noexcept;
  void finish(const char* reason) noexcept;
  // Before its libraries' exit handlers: afterwards nobody is in a call of theirs.
  void program_ends() noexcept;

  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

 private:
  enum class State { warmup, profiling, steady, idle };
  using Guard = std::unique_lock<std::mutex>;
  static constexpr std::uint32_t kMostWarmups = 3;

  // What the calling thread does. In a step and bucket that are over, it is before the first op.
  struct Worker {
    bool trains = false;  // it attached, or last ended a step
    bool in_op = false;
    bool late = false;       // its op is of a step that is over
    bool runs = false;       // its op has been told that it runs
    bool unused = false;     // its op has neither named nor made a tensor of a GPU's
    bool computes = false;   // its op has: what it uses is protected
    bool still = false;      // its op began while nothing was wanted of ops
    std::uint64_t step = 0;  // `begun_` when the op began
    Bucket* bucket = nullptr;
    StepMatcher::Place place;
    StepRecorder::Op op = StepRecorder::kPreludeOp;
    std::uint64_t name = 0;  // its hash
    std::vector<LiveTensor> awaited;
    std::uint32_t interval = 0;
    // Of the tensors that died in the op: placement, share in fast memory.
    std::vector<std::pair<std::uint32_t, double>> died;
  };

  // session.cpp
  static Worker& this_thread();
  static bool trains(const Worker& worker) { return worker.in_op || worker.trains; }
  void before_first_op(Worker&);
  Worker& here();
  bool recording() const { return state_ != State::idle && record_; }
  bool manages() const { return pages_ || !buckets_.empty(); }
  [[noreturn]] void refuse(const std::exception&);
  void say(const std::string&) const;
  void write_summary() const;

  // session_steps.cpp: the states from step to step
  void begin_step();
  void end_warmup_step();
  void end_profile_step();
  void end_steady_step();
  void end_trial_step();
  bool knows(std::uint64_t signature) const;
  bool as_profiled(std::uint64_t signature) const;
  void forget_files(bool alike);
  void plan_another(Profile profile);
  void note_step(const char* phase);
  void tell_progress(const StepRow& ended);
  void watch(StepRow& ended);

  // session_profile.cpp: a step is counted and written down
  // Of what a source was asked: how much it refused, and what it said of the first of that.
  struct Refused {
    std::uint64_t asked = 0, refused = 0;
    std::string reason;
    double share() const {
      return refused == 0 ? 0 : static_cast<double>(refused) / static_cast<double>(asked);
    }
  };
  bool will_count() const;
  void share_memory();
  bool counts_in_kernel() const;
  std::unique_ptr<AccessSource> make_source();
  void begin_counting();
  void end_counting();  // and leaves the memory that can be counted
  bool whole() const;
  void arm(const LiveTensor&);
  void disarm(const LiveTensor&);
  void count_failed(Refused&, int code);
  std::string uncounted() const;  // empty: all were counted
  void drain(StepRecorder::Op);
  void snapshot();
  Profile take_profile(bool complete, const std::string& reason) const;
  void store(const Profile&);

  // session_limit.cpp: how much fast memory there may be
  void hold_warmup_budget();
  std::optional<std::uint64_t> cgroup_room() const;
  void keep_within_cgroup(bool in_step);
  void limit_is(std::uint64_t bytes);
  void settle_cgroup_limit(const Profile&);
  bool limited() const { return !options_.fast.unlimited() || summary_.fast_limit_bytes != 0; }
  std::uint64_t fast_bytes(const Profile&) const;

  // session_plan.cpp: from a profile to a plan
  void start_from_files();
  Machine machine() const;
  void adopt(Profile profile);  // plans, and goes on under the plan
  void adopt_plan(Profile profile, Plan plan);
  void page(PagedPolicy&, const Profile&);
  void tell_large_ops(const Plan&) const;
  void activate(Bucket&);
  void bring(Bucket&);

  // session_ops.cpp: the plan is followed, op by op
  bool on_track() const;
  void follow(Worker&, std::uint64_t prefix);
  Bucket* bucket_of_prefix(std::uint64_t prefix);
  Bucket* bucket_of_allocation(std::uint64_t event);
  void change_to(Bucket&);
  std::uint32_t planned_slot(Worker&, std::uint64_t bytes);
  void prepare(Worker&);
  void complete(Worker&);
  void apply(const std::vector<Move>&, OpId);
  void keep_borders(const LiveTensor&, OpId, bool sinks);
  void let_go_of_borders(std::uint32_t before);
  void reuse_frames();
  void overwrite(LiveTensor&);
  void need(Worker&, LiveTensor*, const void* storage, std::size_t bytes);
  void await_promotions(const Worker&);
  bool leaves(const Worker&, const LiveTensor&);
  void count_accesses(const Worker&);
  double fast_share(const LiveTensor&) const;
  void use_device(Worker&);
  void let_device_go(Worker&);
  void be_still();
  void stir();
  void let_go();
  static std::uint64_t kernel_hash(const Worker&);

  // session_memory.cpp: tensors begin and end
  void note_allocation(std::uint64_t event, std::size_t bytes);
  void stay(LiveTensor&);
  void may_leave(LiveTensor&);
  std::unique_ptr<gpu::Driver> open_unmanaged(int device);
  void tell_of_kept(int device, const std::exception& why);

  SessionOptions options_;
  std::shared_ptr<gpu::Driver> driver_;  // of a GPU that is the fast tier
  std::string framework_;
  OpOrder order_;
  std::unique_ptr<Engine> engine_;
  gpu::Unmanaged unmanaged_;
  std::atomic<bool> told_of_kept_ = false;  // memory there
  Machine machine_;

  std::mutex lock_;  // guards all below
  Space space_;
  std::uint64_t pinned_bytes_ = 0;
  StepRecorder recorder_;
  Names names_;
  Summary summary_;
  State state_ = State::warmup;
  std::atomic<bool> record_ = true;  // this step is recorded op by op
  bool counted_ = false;             // page accesses are being counted
  bool has_counts_ = false;          // what is recorded has page counts
  bool marked_layers_ = false;       // by the program; what the adaptor finds is then ignored
  std::uint32_t layers_marked_ = 0;  // in this step
  bool manual_ = false;              // profiling was asked for by the program
  std::uint32_t steps_ = 0, warmups_ = 0;
  std::uint64_t last_signature_ = 0;
  bool within_cgroup_ = false;        // which is the limit, for good or until there is a plan
  std::uint64_t cgroup_budget_ = 0;   // the tensors' share
  double looked_us_ = 0;              // when it was last looked at
  bool told_of_growth_ = false;       // of what is not tensors
  bool files_wait_ = false;           // a stored profile, until that share is known
  bool keeps_limit_ = false;          // there will be another plan for the step that settled it
  StepRecorder::Times normal_times_;  // of the last step that was not counted
  double normal_us_ = 0;
  double told_us_ = now_us();  // when the last line of progress was said
  bool count_next_ = false;    // counting begins with the next step
  std::uint32_t tries_ = 0;    // profiling steps that a fork cut short
  std::chrono::steady_clock::time_point last_snapshot_;
  std::unique_ptr<AccessSource> source_;
  SourceInfo source_info_;  // of the last one, as it ended
  std::string source_refused_;
  Refused arms_, drains_;  // in this profiling step

  std::atomic<bool> pages_ = false;  // there will be no plans: a pager decides
  std::vector<std::unique_ptr<Bucket>> buckets_;
  Bucket* active_ = nullptr;
  StepMatcher::Place prelude_;       // of what no op of this step makes
  bool changed_ = false;             // this step turned out to be of another kind than it began
  bool diverged_ = false;            // this step is not quite the active bucket's
  std::uint64_t begun_ = 0;          // steps, as far as threads are concerned
  std::uint64_t step_hash_ = 0;      // this step's signature so far
  std::uint32_t step_ops_ = 0;       // begun in this step
  std::uint32_t computing_ = 0;      // ops that use a GPU's tensors now
  std::uint32_t unknown_steps_ = 0;  // steps for which to go on recording
  std::unordered_map<std::uint64_t, std::uint32_t> new_kinds_;  // steps seen, by signature
  std::string model_;
  std::size_t batch_ = 0;
  std::vector<Move> moves_;  // of one op, reused
  // A granule that stays for the tensor that begins in it at that op (borders.h).
  struct KeptBorder {
    std::uintptr_t granule;
    std::uint32_t birth;
    bool sinks;  // what left belongs below the slow tier
  };
  std::vector<KeptBorder> kept_borders_;
  double accesses_ = 0, fast_accesses_ = 0;  // in this step
  std::uint32_t watchable_ = 0;              // steady steps so far
  std::vector<PageCount> drained_;
  std::unique_ptr<Watch> watch_;  // of the steady steps

  std::atomic<bool> wants_tensors_ = true;
  // Nothing is away and nothing leaves. It ends at once, but the engine lets nothing go before an
  // op begins beside which none runs that was not told.
  std::atomic<bool> still_ = false;
  std::atomic<int> untold_ops_ = 0;
  std::atomic<bool> keeps_all_ = false;  // the engine
  bool untold_ = false;                  // this step, or a part of it, was not told
  bool in_child_ = false, warned_of_fork_ = false;
  bool finished_ = false;
};

}  // namespace sentinel
