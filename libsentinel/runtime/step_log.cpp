// Adds each step to the summary, and tells progress and the last words.
#include "runtime/step_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "runtime/limit/replay_rows.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr double kStolen = 0.03;       // of the processors: a smaller part explains nothing
constexpr std::uint32_t kSettled = 2;  // steady steps before the watched ones

}  // namespace

StepLog::StepLog(const SessionOptions& options, const Engine& engine, AddressTable& table,
                 Summary& summary, const Voice& voice)
    : options_(options),
      engine_(engine),
      table_(table),
      summary_(summary),
      voice_(voice),
      metrics_(options.metrics, voice),
      watch_every_(options.counting.watch_every) {}

void StepLog::trains(const std::string& framework) {
  framework_ = framework;
  publication_.begin(options_, summary_, framework);
}

void StepLog::step_ended(const char* phase, const PlanFollower::Accesses& accesses, bool steady) {
  const auto counters = engine_.counters();
  auto& row = summary_.step_ended(phase, counters);
  row.accesses = accesses.all;
  row.fast_accesses = accesses.fast;
  const auto before = std::exchange(replays_, remaking_->counters());
  row.replays = replays_.replays - before.replays;
  row.replayed_bytes = replays_.replayed_bytes - before.replayed_bytes;
  row.discarded_bytes = replays_.discarded_bytes - before.discarded_bytes;
  row.replay_ms = (replays_.us - before.us) / 1e3;
  watch(row, steady);
  if (options_.counting.inspect)
    row.nodes = bytes_by_node(engine_.arena(), engine_.arena() + engine_.arena_bytes());
  summary_.peak_fast_bytes = std::max(summary_.peak_fast_bytes, counters.peak_bytes);
  metrics_.step_ended(framework_, summary_, counters.held_bytes);
  publication_.step_ended(summary_, counters);
  tell_progress(row);
  if (steady) tell_first_moves(row);
}

// Under a limit, on a terminal.
void StepLog::tell_progress(const StepRow& row) {
  constexpr double kEveryUs = 10e6;
  if (options_.mode != Mode::run || (options_.fast.unlimited() && summary_.fast_limit_bytes == 0))
    return;
  if (now_us() - told_.progress_us < kEveryUs || isatty(STDERR_FILENO) == 0) return;
  told_.progress_us = now_us();
  voice_.say(fmt::format("step {} ({}): {:.1f} s, {} in, {} out, {:.1f} s waited for memory",
                         row.step, row.phase, row.ms / 1e3, print_bytes(row.promoted_bytes),
                         print_bytes(row.demoted_bytes), row.stall_ms / 1e3));
}

// The first step under a plan still brings home what lay elsewhere; the second is like all others.
void StepLog::tell_first_moves(const StepRow& row) {
  if (options_.mode != Mode::run || summary_.fast_limit_bytes == 0 || ++told_.planned_steps != 2)
    return;
  const auto slow = summary_.tiers ? summary_.tiers->slow : options_.tiers.slow_directory;
  voice_.say(fmt::format(
      "step {}, the second within the limit: {} went to {} and {} came back; {}{:.0f} of {:.0f} ms "
      "waited for memory",
      row.step, print_bytes(row.demoted_bytes), slow, print_bytes(row.promoted_bytes),
      row.replays == 0 ? ""
                       : fmt::format("{} replay{} made {} again in {:.0f} ms; ", row.replays,
                                     row.replays == 1 ? "" : "s", print_bytes(row.replayed_bytes),
                                     row.replay_ms),
      row.stall_ms, row.ms));
}

// Counts in every Nth steady step, without a hand in what is where. In between nothing is armed:
// the kernel's own tiering passes over armed pages, so it could not work while it is watched.
void StepLog::watch(StepRow& ended, bool steady) {
  if (watch_) ended.openings = watch_->take();
  if (watch_every_ == 0 || !steady) return;
  const bool next = ++watchable_ > kSettled && (watchable_ - kSettled) % watch_every_ == 0;
  if (!next) watch_.reset();
  if (!next || watch_) return;
  try {
    watch_ = std::make_unique<Watch>(engine_.arena());
  } catch (const Error& error) {
    watch_every_ = 0;
    return voice_.say(error.what());
  }
  table_.for_each(
      [this](const LiveTensor& tensor) { watch_->cover(tensor.address + tensor.bytes); });
}

void StepLog::watch_birth(std::uintptr_t end) {
  if (watch_) watch_->cover(end);
}

void StepLog::end(std::uint32_t steps, const std::vector<std::vector<IntervalRow>>& of_plans) {
  if (remaking_ != nullptr) summary_.made_again.trials = remaking_->trials();
  if (!options_.summary.empty() && steps > 0)
    summary_.write(options_.summary, of_plans);  // others may train
  metrics_.end();
  publication_.end();
  if (options_.mode != Mode::run) return;
  if (summary_.steady_ms() > 0)
    voice_.say(fmt::format(
        "{} steps; steady step {:.1f} ms{}; fast memory {} of {} unlimited", steps,
        summary_.steady_ms(),
        summary_.foretold.us > 0 ? fmt::format(" (predicted {:.1f} ms)", summary_.foretold.us / 1e3)
                                 : "",
        print_bytes(summary_.peak_fast_bytes), print_bytes(summary_.peak_unlimited_bytes)));
  if (const double stolen = summary_.stolen(); stolen >= kStolen)
    voice_.say(
        fmt::format("the host took {:.0f} % of this machine's processors in steady steps, for "
                    "its drive or for other machines",
                    100 * stolen));
  for (const auto& line : in_words(summary_.made_again.rows)) voice_.say(line);
  if (const auto line = in_words(summary_.made_again.trials); !line.empty()) voice_.say(line);
  if (options_.moves.recompute_asked && !summary_.made_again.none.empty() && remaking_->possible())
    voice_.say(fmt::format("nothing was made again: {}", summary_.made_again.none));
  if (summary_.drive_days() > 0)
    voice_.say(fmt::format(
        "{} written to {} a step; drives rated for {} TB each bear that for {:.3g} days",
        print_bytes(static_cast<std::uint64_t>(summary_.steady_written_bytes())),
        options_.tiers.slow_directory, summary_.drives.rated_tb, summary_.drive_days()));
}

}  // namespace sentinel
