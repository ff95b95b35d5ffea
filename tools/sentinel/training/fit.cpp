// The largest batch that trains within a budget: one batch is tried after the other, twice as large
// each time until one fails, then halfway between the best and that. A batch is tried by a trace
// and a simulation, and the last one by a run; where the command cannot be traced, each by a run.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "measure/measure.h"
#include "options/options.h"
#include "planning/simulation.h"
#include "runtime/limit/tally.h"
#include "sentinel/error.h"
#include "sim/machine_file.h"
#include "trace/tensor_trace.h"
#include "training/launch.h"
#include "training/stdout_aside.h"
#include "training/temporary_folder.h"
#include "training/tracing.h"

namespace sentinel::cli {
namespace {

constexpr std::string_view kPlace = "{}";  // of the batch, in the command
constexpr int kNotExecutable = 126, kNotFound = 127, kSignalled = 128;

struct BatchSearch {
  std::uint64_t from = 1, most = 1u << 20, within = 16;
  double target = 0;
  bool by_runs = false;
  Launch launch;
};

// Thrown when somebody has stopped the search.
struct Stopped {
  int status;
};

std::vector<std::string> with_batch(std::vector<std::string> command, std::uint64_t batch) {
  for (auto& word : command)
    for (auto at = word.find(kPlace); at != word.npos; at = word.find(kPlace, at))
      word.replace(at, kPlace.size(), std::to_string(batch));
  return command;
}

// Throws Stopped where the status says so, and Error where nothing was started.
void stopped(int status) {
  if (status == kNotFound || status == kNotExecutable)
    throw Error(fmt::format("the command could not be started (status {})", status));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    if (status == kSignalled + signal) throw Stopped{status};
}

bool trains(const BatchSearch& search, std::uint64_t batch) {
  say(fmt::format("batch {} ...", batch));
  const StdoutAside aside;
  const int status = run_command(with_batch(search.launch.command, batch));
  stopped(status);
  say(fmt::format("batch {} {}", batch,
                  status == 0 ? "trains" : fmt::format("fails with status {}", status)));
  return status == 0;
}

using Trial = std::function<bool(std::uint64_t batch)>;

// Between a batch that is good and one that is bad.
std::uint64_t between(const BatchSearch& search, const Trial& works, std::uint64_t good,
                      std::uint64_t bad) {
  while (bad > good + std::max<std::uint64_t>(1, good / search.within)) {
    const auto middle = good + (bad - good) / 2;
    (works(middle) ? good : bad) = middle;
  }
  return good;
}

// From a batch that is good on.
std::uint64_t upwards(const BatchSearch& search, const Trial& works, std::uint64_t good) {
  std::uint64_t bad = 0;
  while (bad == 0 && good < search.most) {
    const auto next = std::min(2 * good, search.most);
    (works(next) ? good : bad) = next;
  }
  return bad == 0 ? good : between(search, works, good, bad);
}

std::uint64_t largest_by_runs(const BatchSearch& search) {
  const auto works = [&](std::uint64_t batch) { return trains(search, batch); };
  if (!works(search.from))
    throw Error(fmt::format("batch {} does not train; its messages are above", search.from));
  return upwards(search, works, search.from);
}

// Tries a batch on the machine that the run would plan for, without the memory.
class Forecast {
 public:
  explicit Forecast(const BatchSearch& search)
      : search_(search),
        options_(options_from_environment()),
        machine_(options_.machine.empty() ? known_machine(options_)
                                          : sim::find_machine(options_.machine)),
        file_(folder_.path() / "step.jsonl.gz") {
    put_drive_below(machine_, options_);
  }

  // Nothing: this batch cannot be traced.
  std::optional<bool> works(std::uint64_t batch) {
    const auto profile = traced(batch);
    if (!profile) return std::nullopt;
    const Scenario scenario{*profile,
                            machine_,
                            {.fast_bytes = options_.fast.bytes,
                             .pool_frames = static_cast<std::uint32_t>(options_.moves.depth),
                             .recompute = options_.moves.recompute}};
    const auto told = [&](bool good, const std::string& why) {
      say(fmt::format("batch {} by trace and simulation: {}", batch, why));
      return good;
    };
    // Over a drive such an op is streamed, which is too slow to be an answer.
    if (const auto largest = largest_op(scenario); !largest.fits)
      return told(false, too_large(scenario, largest));
    const auto trial = try_policy(scenario, options_.policy);
    if (!trial.result) return told(false, trial.reason);
    const auto speed = trial.result->normalized_throughput();
    return told(speed >= search_.target, fmt::format("{:.0f} % of full speed", 100 * speed));
  }

 private:
  std::optional<Profile> traced(std::uint64_t batch) {
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
    const TraceEnvironment tracing(file_, options_.machine.empty() ? "local" : options_.machine,
                                   !std::exchange(has_traced_, true));
    const StdoutAside aside;
    stopped(run_command(with_batch(search_.launch.command, batch)));
    if (!std::filesystem::exists(file_)) return std::nullopt;
    return read_tensor_trace(file_);
  }

  const BatchSearch& search_;
  const SessionOptions options_;
  Machine machine_;
  const TemporaryFolder folder_{"fit"};
  const std::filesystem::path file_;
  bool has_traced_ = false;
};

std::uint64_t largest(const BatchSearch& search) {
  if (search.by_runs) return largest_by_runs(search);
  Forecast forecast(search);
  const auto first = forecast.works(search.from);
  if (!first) {
    say("the command cannot be traced, so each batch is run");
    return largest_by_runs(search);
  }
  if (!*first)
    throw Error(fmt::format("batch {} does not fit, by trace and simulation; --by-runs tries it",
                            search.from));
  std::uint64_t run = 0;  // the last that was run, and trains
  const auto works = [&](std::uint64_t batch) {
    if (const auto forecasted = forecast.works(batch)) return *forecasted;
    say(fmt::format("batch {} cannot be traced, so it is run{}", batch,
                    search.target > 0 ? ", which does not tell its share of full speed" : ""));
    if (!trains(search, batch)) return false;
    run = batch;
    return true;
  };
  const auto found = upwards(search, works, search.from);
  if (found == run) return found;
  say(fmt::format("batch {} by trace and simulation; a run confirms it", found));
  if (trains(search, found)) return found;
  if (found == search.from || !trains(search, search.from))
    throw Error(fmt::format("batch {} does not train; its messages are above", search.from));
  const auto runs = [&](std::uint64_t batch) { return trains(search, batch); };
  return between(search, runs, search.from, found);
}

void check(const BatchSearch& search) {
  const auto has_place = [](const auto& word) { return word.find(kPlace) != word.npos; };
  if (std::ranges::none_of(search.launch.command, has_place))
    throw UsageError("write {} in the command where the batch goes, as in --batch {}");
  if (!search.launch.given("SENTINEL_FAST")) throw UsageError("--fast says within which budget");
  if (search.launch.values.at("SENTINEL_FAST").ends_with('%'))
    throw UsageError("a share of the peak grows with the batch: give --fast in bytes");
  for (const char* one : {"SENTINEL_PROFILE", "SENTINEL_PLAN"})
    if (search.launch.given(one)) throw UsageError("a stored profile or plan is of one batch");
  for (const char* one : {"SENTINEL_OUTPUT", "SENTINEL_SUMMARY"})
    if (search.launch.given(one))
      throw UsageError("each batch would overwrite -o and --summary: run the answer with them");
  if (search.from == 0 || search.from > search.most || search.within == 0)
    throw UsageError("--from 1 or more, --most not below it, --within 1 or more");
  const auto& given = search.launch.values;
  const auto tiers = given.find("SENTINEL_TIERS");
  if (search.target > 0 && tiers != given.end() && parse_gpu_tier(tiers->second) &&
      !search.launch.given("SENTINEL_MACHINE"))
    throw UsageError(
        "--target needs op times of the GPU, and a trace is made without it: add --machine");
  if (!(search.target >= 0 && search.target <= 1)) throw UsageError("--target 0 to 1");
}

}  // namespace

Action declare_fit(Form& form) {
  const auto search = std::make_shared<BatchSearch>();
  search->launch.mode = Mode::run;
  form.rows = launch_rows(search->launch);
  form.rows.push_back({"--from", "N", "batch to begin with", &search->from});
  form.rows.push_back({"--most", "N", "batch to end with", &search->most});
  form.rows.push_back(
      {"--within", "N", "the answer is less than an Nth too small", &search->within});
  form.rows.push_back({"--target", "SHARE",
                       "of full speed that the batch has to keep, by simulation; 0.8, say",
                       &search->target});
  form.rows.push_back({"--by-runs", "", "run each batch, and trace none", &search->by_runs});
  form.takes_command = true;
  return [search, &form] {
    search->launch.command = form.command;
    check(*search);
    prepare_run(search->launch);
    const auto tally = Tally::make();  // by which trainings know that we are killed
    try {
      return print(fmt::format("{}\n", largest(*search)));
    } catch (const Stopped& stopped) {
      return stopped.status;
    }
  };
}

}  // namespace sentinel::cli
