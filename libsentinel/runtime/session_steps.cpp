// What a step was, and so what the next is for: the states from the first step to the last.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/units.h"
#include "runtime/session.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint32_t kGrown = 2;       // steps in which a program takes what it keeps
constexpr std::uint32_t kSettled = 2;     // steady steps before the watched ones
constexpr std::uint32_t kPatience = 5;    // steps until a stored profile's is seen
constexpr std::size_t kMostBuckets = 10;  // the paper's, section IV-E

}  // namespace

// What a step begins with is known to the recorder as present, in the order of birth.
void Session::begin_step() {
  ++begun_;
  let_go_of_borders(UINT32_MAX);
  changed_ = false;
  step_hash_ = 0;
  step_ops_ = 0;
  if (std::exchange(diverged_, false)) reuse_frames();
  layers_marked_ = 0;
  accesses_ = fast_accesses_ = 0;
  if (active_ != nullptr) active_->begin_step();
  prelude_ = active_ != nullptr ? active_->matcher().prelude() : StepMatcher::Place();
  if (active_ != nullptr) active_->trials().begin_step(now_us());
  if (!recording()) return;
  recorder_.begin(order_);
  if (marked_layers_) recorder_.layer("layer 1", Phase::forward);
  std::vector<LiveTensor*> alive;
  space_.table().for_each([&](LiveTensor& tensor) { alive.push_back(&tensor); });
  std::sort(alive.begin(), alive.end(), [](auto* a, auto* b) { return a->birth < b->birth; });
  for (auto* tensor : alive)
    tensor->record = recorder_.present(tensor->bytes, tensor->address - engine_->arena());
}

void Session::step_end() noexcept {
  if (in_child_) return;
  try {
    Guard guard(lock_);
    this_thread().trains = true;
    this_thread().died.clear();
    if (state_ == State::profiling && manual_) {  // the program says what it wants profiled
      ++steps_;
      return;
    }
    if (state_ == State::profiling)
      end_profile_step();
    else if (state_ == State::warmup)
      end_warmup_step();
    else if (state_ == State::steady && untold_)
      note_step("steady");
    else if (state_ == State::steady)
      end_steady_step();
    ++steps_;
    if (active_ != nullptr) active_->take_over(space_);
    be_still();
    begin_step();
    if (std::exchange(count_next_, false)) begin_counting();
  } catch (const std::exception& error) {
    refuse(error);
  }
}

void Session::end_warmup_step() {
  note_step("warmup");
  const auto signature = recorder_.signature();
  const bool equal = steps_ > 0 && signature == last_signature_;
  normal_times_ = recorder_.op_microseconds();
  normal_us_ = recorder_.microseconds();
  last_signature_ = signature;
  ++warmups_;
  keep_within_cgroup(false);
  if (warmups_ == kGrown && std::exchange(files_wait_, false)) start_from_files();
  if (!buckets_.empty()) {  // from files: the plan is tried, and kept once its step is seen
    const bool seen = knows(signature), alike = as_profiled(signature);
    const bool keep = seen || (alike && !options_.plan.empty());
    const bool wait = warmups_ < kPatience && !(alike && equal);  // the next may be the very same
    if (keep || wait) activate(*buckets_.front());
    if (keep) state_ = State::steady;
    record_ = wants_tensors_ = !keep;
    if (keep || wait) return;
    forget_files(alike);
  }
  if (!equal && warmups_ < kMostWarmups) return;
  if (manual_) return;
  state_ = State::profiling;
  count_next_ = true;
}

// The step that ends is of a known kind. In any order it need not be the same to the last buffer.
bool Session::as_profiled(std::uint64_t signature) const {
  return knows(signature) || (active_ != nullptr && !diverged_ && active_->matcher().resembles());
}

// A plan for this process's order of ops is better than that of another's: of a stored profile that
// is alike only the limit stays.
void Session::forget_files(bool alike) {
  active_ = nullptr;
  if (!options_.plan.empty())
    throw Error(
        fmt::format("{} was made for another model, batch or program: no step so far equals the "
                    "one it plans. Leave out --plan to profile this one",
                    options_.plan));
  say(alike ? fmt::format("{} is of this step with its ops in another order, which {} chooses "
                          "anew in each process; profiling again, within the same limit",
                          options_.profile, framework_)
            : fmt::format("{} is of another step than this program's; profiling again",
                          options_.profile));
  buckets_.clear();
  keeps_limit_ = alike;
  if (within_cgroup_ && !alike) summary_.fast_limit_bytes = 0;
  summary_.forget_plans();  // but the limit holds until there is another
}

// A fork ends counting: the next step is tried, and in the end op inputs and outputs are taken.
void Session::end_profile_step() {
  constexpr std::uint32_t kMostTries = 3;
  const bool interrupted = !counted_ && source_refused_.empty();
  end_counting();
  if (interrupted && !manual_ && ++tries_ < kMostTries) {
    note_step("warmup");
    count_next_ = true;
    return;
  }
  if (interrupted) {
    say("the program forked while its step was profiled: op inputs and outputs are taken for "
        "accesses");
    recorder_.forget_openings();
    has_counts_ = false;
  }
  note_step("profile");
  auto profile = take_profile(true, "");
  has_counts_ = false;
  store(profile);
  const bool wanted = options_.mode == Mode::run && !pages_ && !knows(profile.meta.signature);
  if (wanted && buckets_.size() < kMostBuckets)
    adopt(std::move(profile));
  else
    state_ = manages() ? State::steady : State::idle;
  if (!buckets_.empty() && active_ == nullptr) activate(*buckets_.front());
  record_ = wants_tensors_ = false;
}

// A step of a kind that was not profiled yet ran by demand; seen twice, it gets a plan of its own.
void Session::end_steady_step() {
  if (active_ != nullptr && engine_->in_place())
    end_trial_step();
  else
    note_step("steady");
  keep_within_cgroup(false);
  if (pages_) return;
  if (as_profiled(step_hash_)) {
    if (unknown_steps_ > 0 && --unknown_steps_ == 0) record_ = false;
  } else if (buckets_.size() < kMostBuckets) {
    constexpr std::uint32_t kWatch = 64;  // steps to go on recording after a new kind
    unknown_steps_ = kWatch;
    const bool again = ++new_kinds_[step_hash_] >= 2;
    if (again && record_ && step_hash_ == recorder_.signature()) {
      normal_times_.clear();
      plan_another(take_profile(true, ""));
    }
    record_ = true;
  }
  // Under a plan without moves nothing else says what is in use.
  const bool by_demand = within_cgroup_ && summary_.fast_limit_bytes != 0 && active_ != nullptr &&
                         !active_->moves_anything();
  wants_tensors_ = record_ || by_demand;
}

bool Session::knows(std::uint64_t signature) const {
  return std::any_of(buckets_.begin(), buckets_.end(), [&](const auto& bucket) {
    return bucket->matcher().signature() == signature;
  });
}

// In the middle of training: without a plan such steps go on by demand.
void Session::plan_another(Profile profile) {
  try {
    adopt(std::move(profile));
  } catch (const Error& error) {
    say(fmt::format("a kind of step gets no plan and runs by demand: {}", error.what()));
  }
}

void Session::note_step(const char* phase) {
  const auto counters = engine_->counters();
  auto& row = summary_.step_ended(phase, counters);
  row.accesses = accesses_;
  row.fast_accesses = fast_accesses_;
  watch(row);
  if (options_.inspect)
    row.nodes = bytes_by_node(engine_->arena(), engine_->arena() + engine_->arena_bytes());
  summary_.peak_fast_bytes = std::max(summary_.peak_fast_bytes, counters.peak_bytes);
  tell_progress(row);
}

// Under a limit, on a terminal.
void Session::tell_progress(const StepRow& row) {
  constexpr double kEveryUs = 10e6;
  if (options_.mode != Mode::run || !limited()) return;
  if (now_us() - told_us_ < kEveryUs || isatty(STDERR_FILENO) == 0) return;
  told_us_ = now_us();
  say(fmt::format("step {} ({}): {:.1f} s, {} in, {} out, {:.1f} s waited for memory", row.step,
                  row.phase, row.ms / 1e3, print_bytes(row.promoted_bytes),
                  print_bytes(row.demoted_bytes), row.stall_ms / 1e3));
}

// Counts in every Nth steady step, without a hand in what is where. In between nothing is armed:
// the kernel's own tiering passes over armed pages, so it could not work while it is watched.
void Session::watch(StepRow& ended) {
  if (watch_) ended.openings = watch_->take();
  if (options_.watch_every == 0 || state_ != State::steady) return;
  const bool next = ++watchable_ > kSettled && (watchable_ - kSettled) % options_.watch_every == 0;
  if (!next) watch_.reset();
  if (!next || watch_) return;
  try {
    watch_ = std::make_unique<Watch>(engine_->arena());
  } catch (const Error& error) {
    options_.watch_every = 0;
    return say(error.what());
  }
  space_.table().for_each(
      [this](const LiveTensor& tensor) { watch_->cover(tensor.address + tensor.bytes); });
}

void Session::end_trial_step() {
  auto& trials = active_->trials();
  note_step(trials.trying() ? "trial" : "steady");
  const auto& matcher = active_->matcher();
  const bool whole = !diverged_ && (step_hash_ == matcher.signature() || matcher.resembles());
  trials.end_step(now_us(), whole);
}

int Session::start_profile() {
  const Guard guard(lock_);
  if (manual_) return -EALREADY;
  stir();
  end_counting();  // of a step that was chosen by itself
  watch_.reset();
  count_next_ = false;
  manual_ = true;
  state_ = State::profiling;
  record_ = true;
  wants_tensors_ = true;
  begin_step();
  begin_counting();
  return 0;
}

int Session::end_profile() {
  const Guard guard(lock_);
  if (state_ != State::profiling || !manual_) return -EINVAL;
  try {
    end_profile_step();
  } catch (...) {  // it could not be written or planned: the program hears of it and may go on
    state_ = manages() ? State::steady : State::idle;
    record_ = wants_tensors_ = manual_ = false;
    throw;
  }
  manual_ = false;
  begin_step();
  return 0;
}

}  // namespace sentinel
