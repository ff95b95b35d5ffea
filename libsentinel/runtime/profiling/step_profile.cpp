// Takes the recorded step, adds the program's facts and op times, and writes the profile.
#include "runtime/profiling/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <unordered_map>
#include <utility>

#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "trace/machine_record.h"
#include "trace/store.h"

namespace sentinel {
namespace {

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

}  // namespace

StepProfile::StepProfile(const SessionOptions& options, std::string framework,
                         const StepRecorder& recorder, const Counting& counting, Summary& summary,
                         const Voice& voice)
    : options_(options),
      framework_(std::move(framework)),
      recorder_(recorder),
      counting_(counting),
      summary_(summary),
      voice_(voice) {}

void StepProfile::program(const char* model, std::size_t batch) {
  if (!model_.empty()) return;
  model_ = model;
  batch_ = batch;
}

void StepProfile::uncounted_step_ended() {
  times_ = recorder_.op_microseconds();
  us_ = recorder_.microseconds();
  last_signature_ = recorder_.signature();
}

Profile StepProfile::take(bool complete, const std::string& reason) const {
  ProfileMeta meta{.complete = complete,
                   .incomplete_reason = complete ? "" : reason,
                   .model = model_,
                   .command = options_.command,
                   .framework = framework_,
                   .batch = batch_,
                   .step_us = us_,
                   .profiled_step_us = recorder_.microseconds(),
                   .signature = recorder_.signature(),
                   .machine = this_machine(),
                   .created = now_utc()};
  counting_.describe(meta);
  return recorder_.profile(meta, as_last_step() ? times_ : StepRecorder::Times());
}

std::vector<double> StepProfile::times_of(const Profile& profile) const {
  if (recorder_.signature() != profile.meta.signature) return {};
  const auto times = recorder_.op_microseconds();
  std::unordered_map<std::uint64_t, std::size_t> seen;
  std::vector<double> us;
  for (const auto& op : profile.ops) {
    const auto hash = name_hash(op.name);
    const auto found = times.find(hash);
    const auto at = seen[hash]++;
    if (found == times.end() || at >= found->second.size()) return {};
    us.push_back(found->second[at]);
  }
  return us;
}

void StepProfile::snapshot() {
  constexpr Clock::duration kLeast = std::chrono::seconds(1);
  constexpr int kShare = 20;  // of the time at most one part in so many is spent on them
  const auto begin = Clock::now();
  if (options_.output.empty() || begin < next_snapshot_) return;
  try {
    write_profile(options_.output, take(false, "the program was killed during the profiling step"));
    const auto end = Clock::now();
    next_snapshot_ = end + std::max(kLeast, kShare * (end - begin));
  } catch (const Error& error) {  // the profile itself may still be written at the end
    voice_.say(error.what());
    next_snapshot_ = Clock::time_point::max();
  }
}

void StepProfile::store(const Profile& profile) {
  summary_.peak_unlimited_bytes = std::max(summary_.peak_unlimited_bytes, peak_live_bytes(profile));
  if (options_.output.empty()) return;
  write_profile(options_.output, profile);
  voice_.say(fmt::format(
      "profile written to {}: {} tensors, {} ops, {} layers. Next: sentinel report {} heatmap",
      options_.output, profile.tensors.size(), profile.ops.size(), profile.layers.size(),
      options_.output));
}

}  // namespace sentinel
