// Counting in a profiling step, and what becomes of it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>

#include "capture/kernel_source.h"
#include "capture/samples/sample_source.h"
#include "capture/userfault/userfault_source.h"
#include "engine/gpu/fault_source.h"
#include "engine/gpu/page_faults.h"
#include "engine/host/limits.h"
#include "runtime/gpu_counting.h"
#include "runtime/session.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "trace/machine_record.h"
#include "trace/store.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSmall = 8;    // pages of a tensor of which each is tracked
constexpr std::uint64_t kSamples = 4;  // pages of a larger one that are tracked, at least

// Small tensors page by page, large ones by one page in 2^n.
std::uint32_t stride_of(std::uint64_t bytes, bool exact) {
  const auto pages = round_up(bytes, kPage) / kPage;
  if (exact || pages <= kSmall) return 1;
  return static_cast<std::uint32_t>(std::bit_floor(pages / kSamples));
}

ArmRange range_of(const LiveTensor& tensor, bool exact) {
  return {.begin = tensor.address,
          .bytes = round_up(tensor.bytes, kPage),
          .stride = stride_of(tensor.bytes, exact),
          .tag = tensor.record};
}

// W: as many pages as the last-level cache holds, so that what is counted are accesses to memory.
std::uint32_t window_of(const SessionOptions& options) {
  constexpr std::uint32_t kUnknownCache = 8192;
  if (options.window_pages != 0) return options.window_pages;
  const auto pages = static_cast<std::uint32_t>(this_machine().llc_bytes / kPage);
  return std::max(pages != 0 ? pages : kUnknownCache, options.gpu ? gpu::kLeastWindow : 1);
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

}  // namespace

// The kernel's source needs nothing of the memory but that it stays where it is: what a FrameEngine
// takes out and puts back, the kernel would take for gone.
bool Session::counts_in_kernel() const {
  if (options_.count == "kernel") return true;
  const bool stays = engine_->in_place() || options_.mode == Mode::record;
  return options_.count == "auto" && stays && KernelSource::probe() == 0;
}

// The one that SENTINEL_COUNT names. Throws Error where it is refused.
std::unique_ptr<AccessSource> Session::make_source() {
  if (options_.count == "samples") return std::make_unique<SampleSource>(find_sample_events());
  if (options_.count == kCupti)
    return std::make_unique<gpu::FaultSource>(*driver_,
                                              gpu::open_cupti(options_.cupti, *options_.gpu),
                                              engine_->arena(), engine_->arena_bytes());
  if (counts_in_kernel()) try {
      return std::make_unique<KernelSource>(
          KernelSource::Options{.window_pages = window_of(options_),
                                .in_company = !options_.exact,
                                .device = driver_ ? gpu::name_of(driver_->pageable()) : ""});
    } catch (const Error& error) {
      if (options_.count == "kernel") throw;
      say(fmt::format("{}; userfaultfd counts instead", error.what()));
    }
  share_memory();
  auto source = std::make_unique<UserfaultSource>(
      *engine_->loop(),
      UserfaultSource::Options{.window_pages = window_of(options_), .in_company = !options_.exact});
  engine_->count_with(&UserfaultSource::count, source.get());
  return source;
}

// Right after a step began. Every live tensor is armed. Where counting is refused, the profile
// takes op inputs and outputs as accesses and says so.
void Session::begin_counting() {
  has_counts_ = false;
  arms_ = drains_ = {};
  if (options_.count == "ops") source_refused_ = "page counting was not asked for";
  if (!source_refused_.empty()) return;
  try {
    source_ = make_source();
  } catch (const Error& error) {
    if (options_.count == "kernel" || gpu::counted(options_)) throw;
    source_refused_ = error.what();
    end_counting();
    return say(fmt::format(
        "page accesses cannot be counted here, op inputs and outputs are taken instead: {}",
        error.what()));
  }
  counted_ = has_counts_ = true;
  space_.table().for_each([this](const LiveTensor& tensor) { arm(tensor); });
  last_snapshot_ = {};
  snapshot();
}

// The first steps then touch the memory first that is counted later, and no step copies it.
bool Session::will_count() const {
  const bool by_faults =
      options_.count == "userfaultfd" || (options_.count == "auto" && !counts_in_kernel());
  return state_ == State::warmup && by_faults && buckets_.empty() && !files_wait_ &&
         engine_->loop() != nullptr && engine_->loop()->can_count();
}

void Session::share_memory() {
  if (engine_->counting()) return;
  if (const int code = engine_->start_counting(); code != 0)
    throw Error("the arena could not be switched to counting", -code);
}

void Session::end_counting() {
  if (counted_) {
    drain(recorder_.latest_op());
    counted_ = false;
    source_info_ = source_->info();
    engine_->count_with(nullptr, nullptr);
    source_.reset();  // before its memory is replaced
    if (source_info_.name == "kernel") engine_->counted_in_kernel();
    if (const auto lost = uncounted(); !lost.empty()) say(lost);
  }
  if (!engine_->counting()) return;
  const int code = engine_->stop_counting();
  if (code == -EBUSY)
    refuse(Error(
        "training stopped: a tensor's memory is pinned (a buffer of io_uring or RDMA, or direct "
        "I/O under way) while page accesses are counted, and cannot be moved: pin it once the "
        "first steps are over, or run with --count=ops"));
  if (code != 0) refuse(Error("the arena could not be switched back from counting", -code));
}

// Every page is tracked. A source that samples accesses need not sample pages.
bool Session::whole() const { return options_.exact || source_->info().whole; }

void Session::arm(const LiveTensor& tensor) {
  if (tensor.record == StepRecorder::kNone) return;
  const auto range = range_of(tensor, whole());
  recorder_.sampled(tensor.record, range.stride);
  ++arms_.asked;
  if (const int code = source_->arm({&range, 1}); code != 0) count_failed(arms_, code);
}

void Session::disarm(const LiveTensor& tensor) {
  if (tensor.record == StepRecorder::kNone) return;
  const auto range = range_of(tensor, whole());
  if (const int code = source_->disarm({&range, 1}); code != 0) count_failed(arms_, code);
}

// A tensor that is not armed is not counted; what is not disarmed counts on, for nobody. What an op
// opened and could not be taken is told with a later op's, if at all.
void Session::count_failed(Refused& of, int code) {
  of.refused = std::min(of.refused + 1, of.asked);  // of a tensor, both may be refused
  if (!of.reason.empty()) return;
  of.reason = source_->failure();
  if (of.reason.empty()) of.reason = std::strerror(-code);
}

std::string Session::uncounted() const {
  std::string text;
  if (arms_.refused != 0)
    text = fmt::format("{} of {} tensors were not counted, or not to their end: {}", arms_.refused,
                       arms_.asked, arms_.reason);
  if (drains_.refused != 0)
    text += fmt::format("{}the counts of {} of {} ops are lost, or went to later ones: {}",
                        text.empty() ? "" : "; ", drains_.refused, drains_.asked, drains_.reason);
  return text;
}

// After every op, so that each count is the op's that caused it.
void Session::drain(StepRecorder::Op op) {
  drained_.clear();
  ++drains_.asked;
  if (const int code = source_->drain(drained_); code != 0) count_failed(drains_, code);
  for (const auto& count : drained_) recorder_.opened(op, count);
  snapshot();
}

Profile Session::take_profile(bool complete, const std::string& reason) const {
  const bool counts = has_counts_;
  const auto& source = source_ ? source_->info() : source_info_;
  const double lost = arms_.share() + drains_.share();
  ProfileMeta meta{.source = counts ? source.name : "ops",
                   .exact = counts && source.exact && options_.exact && lost == 0,
                   .read_write = counts && source.reads_writes_apart,
                   .complete = complete,
                   .incomplete_reason = !complete ? reason
                                        : counts  ? uncounted()
                                                  : "",
                   .model = model_,
                   .command = options_.command,
                   .framework = framework_,
                   .batch = batch_,
                   .window_pages = counts && source.window ? window_of(options_) : 0,
                   .sample_error = counts ? 2 * recorder_.sample_error() + source.missed + lost : 0,
                   .step_us = normal_us_,
                   .profiled_step_us = recorder_.microseconds(),
                   .signature = recorder_.signature(),
                   .machine = this_machine(),
                   .created = now_utc()};
  return recorder_.profile(
      meta, last_signature_ == recorder_.signature() ? normal_times_ : StepRecorder::Times());
}

// What a program that is killed while profiling leaves behind: the step so far, once in a while.
void Session::snapshot() {
  constexpr std::chrono::seconds kEvery{1};
  const auto now = std::chrono::steady_clock::now();
  if (options_.output.empty() || now < last_snapshot_ + kEvery) return;
  try {
    write_profile(options_.output,
                  take_profile(false, "the program was killed during the profiling step"));
    last_snapshot_ = std::chrono::steady_clock::now();
  } catch (const Error& error) {  // the profile itself may still be written at the end
    say(error.what());
    last_snapshot_ = std::chrono::steady_clock::time_point::max() - kEvery;
  }
}

void Session::store(const Profile& profile) {
  summary_.peak_unlimited_bytes = std::max(summary_.peak_unlimited_bytes, peak_live_bytes(profile));
  if (options_.output.empty()) return;
  write_profile(options_.output, profile);
  say(fmt::format(
      "profile written to {}: {} tensors, {} ops, {} layers. Next: sentinel report {} heatmap",
      options_.output, profile.tensors.size(), profile.ops.size(), profile.layers.size(),
      options_.output));
}

}  // namespace sentinel
