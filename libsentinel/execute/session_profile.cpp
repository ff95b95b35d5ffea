// Counting in a profiling step, and what becomes of it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <ctime>

#include "capture/userfault_source.h"
#include "execute/limits.h"
#include "execute/session.h"
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
  return pages != 0 ? pages : kUnknownCache;
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

}  // namespace

// Right after a step began. The arena becomes shared memory and every live tensor is armed. Where
// counting is refused, the profile takes op inputs and outputs as accesses and says so.
void Session::begin_counting() {
  has_counts_ = false;
  if (options_.count == "ops") source_refused_ = "page counting was not asked for";
  if (!source_refused_.empty()) return;
  try {
    share_memory();
    auto source = std::make_unique<UserfaultSource>(
        *engine_->loop(), UserfaultSource::Options{.window_pages = window_of(options_),
                                                   .in_company = !options_.exact});
    engine_->count_with(&UserfaultSource::count, source.get());
    source_ = std::move(source);
  } catch (const Error& error) {
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
  return state_ == State::warmup && options_.count != "ops" && buckets_.empty() &&
         engine_->loop() != nullptr && engine_->loop()->can_count();
}

void Session::share_memory() {
  if (engine_->counting()) return;
  if (const int code = engine_->start_counting(); code != 0)
    throw Error("the arena could not be switched to counting", -code);
}

void Session::end_counting() {
  if (counted_) {
    drain();
    counted_ = false;
    engine_->count_with(nullptr, nullptr);
    source_.reset();  // before its memory is replaced
  }
  if (!engine_->counting()) return;
  if (const int code = engine_->stop_counting(); code != 0)
    refuse(Error("the arena could not be switched back from counting", -code));
}

void Session::arm(const LiveTensor& tensor) {
  if (tensor.record == StepRecorder::kNone) return;
  const auto range = range_of(tensor, options_.exact);
  recorder_.sampled(tensor.record, range.stride);
  source_->arm({&range, 1});
}

void Session::disarm(const LiveTensor& tensor) {
  if (tensor.record == StepRecorder::kNone) return;
  const auto range = range_of(tensor, options_.exact);
  source_->disarm({&range, 1});
}

// After every op, so that each count is the op's that caused it.
void Session::drain() {
  drained_.clear();
  source_->drain(drained_);
  for (const auto& count : drained_) recorder_.opened(count);
  snapshot();
}

Profile Session::take_profile(bool complete, const std::string& reason) const {
  const bool counts = has_counts_;
  ProfileMeta meta{.source = counts ? "userfaultfd" : "ops",
                   .exact = counts && options_.exact,
                   .read_write = counts,
                   .complete = complete,
                   .incomplete_reason = complete ? "" : reason,
                   .model = model_,
                   .command = options_.command,
                   .framework = framework_,
                   .batch = batch_,
                   .window_pages = counts ? window_of(options_) : 0,
                   .sample_error = counts && !options_.exact
                                       ? 2 * recorder_.sample_error() + UserfaultSource::kLateness
                                       : 0,
                   .step_us = normal_us_,
                   .profiled_step_us = recorder_.microseconds(),
                   .signature = recorder_.signature(),
                   .machine = this_machine(),
                   .created = now_utc()};
  return recorder_.profile(
      meta, last_signature_ == recorder_.signature() ? normal_times_ : std::vector<double>());
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
