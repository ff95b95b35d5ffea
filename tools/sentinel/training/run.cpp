// `sentinel run`: checks budget, plan and directory, and starts a training under them.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

#include "base/failure.h"
#include "base/output.h"
#include "base/units.h"
#include "cli/inputs.h"
#include "cli/profile_files.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "engine/gpu/store/host_store.h"
#include "engine/granule.h"
#include "engine/host/limits.h"
#include "engine/host/ranks.h"
#include "engine/io/slow_file.h"
#include "measure/measure.h"
#include "plan/check/made_again.h"
#include "plan/check/plan_file.h"
#include "runtime/limit/workable.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sharing/start.h"
#include "sim/machine_file.h"
#include "trace/read_any.h"
#include "training/launch.h"
#include "training/outcome.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

// Without a profile only a budget in bytes is known to be too small.
void check_budget(const SessionOptions& options, const std::optional<Profile>& profile) {
  if (options.fast.percent > 0) return;  // the smallest that works is taken then
  if (!profile) {
    if (options.fast.bytes != 0) require_workable(options.fast.bytes, options);
    return;
  }
  const auto policy = make_policy(options.policy);
  auto* planned = dynamic_cast<PlannedPolicy*>(policy.get());
  if (planned == nullptr) return require_workable(budget_bytes(options.fast, *profile), options);
  auto machine =
      sim::find_machine(options.machine.empty() ? local_machine(options) : options.machine);
  machine.granule_bytes = options.tiers.granule_bytes;
  require_workable(budget_bytes(options.fast, *profile), options, *profile, machine, *planned);
}

// The limit without --fast, where it is less than the machine's memory; what of it the program
// takes is not known yet.
std::optional<std::uint64_t> cgroup_limit(const SessionOptions& options) {
  if (!options.fast.unlimited() || options.gpu.device || options.tiers.nodes) return std::nullopt;
  const auto left = cgroup_headroom();
  if (!left || *left >= physical_bytes()) return std::nullopt;
  return *left / rank_of_process().beside;
}

// A plan has its own policy and budget: what is asked for beside it has to agree.
Profile check_plan(Launch& launch, const SessionOptions& options) {
  const auto plan = plan::read_plan(options.plan);
  auto profile = read_any(plan.profile_path);
  plan::check_sound(plan, profile, options.plan);
  require_live(plan, options, plan::why_no_replays(plan.machine, profile.meta).empty());
  if (launch.given("SENTINEL_POLICY") && options.policy != plan.policy)
    throw UsageError(
        fmt::format("{} was made by policy {}, not {}", options.plan, plan.policy, options.policy));
  const auto left = cgroup_limit(options);
  if (left && *left < std::min(plan.fast_bytes, peak_live_bytes(profile)))
    throw Error(
        fmt::format("{} was made for a budget of {}, more than the memory cgroup leaves ({}); make "
                    "another with sentinel plan",
                    options.plan, print_bytes(plan.fast_bytes), print_bytes(*left)));
  const auto wanted = budget_bytes(options.fast, profile);
  if (!options.fast.unlimited() && wanted < plan.fast_bytes)
    throw Error(
        fmt::format("{} was made for a budget of {}, more than the {} of --fast; make another with "
                    "sentinel plan",
                    options.plan, print_bytes(plan.fast_bytes), print_bytes(wanted)));
  setenv("SENTINEL_POLICY", plan.policy.c_str(), 1);
  setenv("SENTINEL_FAST", std::to_string(plan.fast_bytes).c_str(), 1);
  return profile;
}

// What the run starts from, if from anything; read once here so that a wrong file shows before the
// command starts.
std::optional<Profile> start_profile(Launch& launch, const SessionOptions& options) {
  if (!options.plan.empty() && !options.profile.empty())
    throw UsageError("--plan brings its own profile: give either --profile or --plan");
  if (!options.plan.empty()) return check_plan(launch, options);
  if (!options.profile.empty()) return read_any(options.profile);
  return std::nullopt;
}

// With a profile it is known how much will leave memory; without one, the engine's first slots.
void check_slow_tier(const SessionOptions& options, const std::optional<Profile>& profile,
                     std::optional<std::uint64_t> cgroup) {
  std::uint64_t need = 0;
  if (profile && (cgroup || !options.fast.unlimited())) {
    const auto peak = peak_live_bytes(*profile),
               above = cgroup.value_or(budget_bytes(options.fast, *profile)) +
                       options.gpu.host_bytes + options.tiers.node_bytes;
    need = peak > above ? peak - above : 0;
  }
  SlowFile({.directory = options.tiers.slow_directory,
            .frame_bytes = kGranule,
            .need_bytes = need,
            .allow_memory = options.tiers.allow_tmpfs});
  if (options.gpu.device && options.moves.io == kCuFile) {  // which is tried when a store begins
    const auto driver = open_gpu(options);
    std::mutex lock;
    std::string failure;
    gpu::HostStore::Events events;
    events.failed = [&](const std::exception& error) { failure = in_words(error); };
    { const gpu::HostStore store(*driver, lock, kGranule, host_options(options), events); }
    if (!failure.empty()) throw Error(failure);
  }
}

// Once, for the program as well.
void say_not_kept(const Error& error, bool quiet) {
  if (!quiet && std::getenv("SENTINEL_CACHE_TOLD") == nullptr)
    say(fmt::format("{}; the machine will be measured again next time", error.what()));
  setenv("SENTINEL_CACHE_TOLD", "1", 1);
}

Machine measure_once(const SessionOptions& options) {
  if (!options.machine.empty()) return sim::find_machine(options.machine);
  if (is_measured(options)) return known_machine(options);
  Progress progress;
  progress.now(fmt::format("measuring {}, once",
                           options.gpu.device
                               ? fmt::format("gpu{}, {}", *options.gpu.device, options.gpu.memory)
                           : options.tiers.nodes ? print(*options.tiers.nodes)
                                                 : "memory and " + options.tiers.slow_directory));
  const auto machine = measure_machine(options);
  try {
    sim::write_local_machine(local_machine(options), machine);
  } catch (const Error& error) {
    say_not_kept(error, options.quiet);
  }
  return machine;
}

// With the way to a GPU's memory settled, for the program too.
SessionOptions settled(const SessionOptions& asked) {
  auto options = with_gpu_memory(asked, measure_once);
  if (options.gpu.device) setenv("SENTINEL_GPU_MEMORY", options.gpu.memory.c_str(), 1);
  return options;
}

// "the summary"
void check_place(const std::string& path, const char* what) {
  if (path.empty()) return;
  const auto folder = fs::absolute(path).parent_path();
  if (access(folder.c_str(), W_OK) != 0)
    throw Error(fmt::format("cannot write {} into {}", what, folder.string()), errno);
  output_place(path, fmt::format("cannot write {} to {}", what, path));
  if (fs::exists(path) && !fs::is_regular_file(path))
    throw Error(fmt::format("{} is no file; name another one for {}", path, what));
}

// The command's status; with --strict 125 where no limit held that was asked for.
int run(const Launch& launch) {
  const auto options = options_from_environment();
  const auto tally = Tally::make();
  const int status = run_command(launch.command);
  const auto counts = tally.counts();
  const bool shared = !options.sharing.broker.empty();
  const bool limited = shared || !options.fast.unlimited() || cgroup_limit(options);
  const auto missed = shortfall(counts, limited, launch.command);
  // Without a limit nothing was missed, and a command that failed has said why.
  const bool told = (limited || options.strict) && (status == 0 || counts.with_steps > 0);
  if (!missed.empty() && told && status != kOwnFailure && (!options.quiet || options.strict))
    say(missed);
  const bool failed = !missed.empty() || counts.gave_up > 0;
  return status == 0 && options.strict && failed ? kOwnFailure : status;
}

}  // namespace

void prepare_run(Launch& launch) {
  const auto asked = enter_environment(launch);
  const auto profile = start_profile(launch, asked);
  const auto options = settled(options_from_environment());  // a plan knows policy and budget
  require_policy(options);
  check_place(options.summary, "the summary");
  check_place(options.metrics, "the metrics");
  if (!options.output.empty()) require_writable_profile(options.output);
  const bool asked_for = !options.fast.unlimited();
  const auto cgroup = cgroup_limit(options);
  const bool shared = !options.sharing.broker.empty();
  if (shared) launch.broker = ensure_broker(options);
  const bool limited = asked_for || cgroup || shared;
  const bool below = options.gpu.host_bytes != 0 || options.tiers.three(),
             drives = below || (!options.tiers.nodes && !options.gpu.device);
  if (drives &&
      (limited || below || launch.given("SENTINEL_DIR") || launch.given("SENTINEL_TIERS")))
    check_slow_tier(options, profile, cgroup);
  if (asked_for && !profile) check_budget(options, profile);
  if (limited || options.tiers.nodes || options.gpu.device) measure_once(options);
  if (options.gpu.device) open_gpu(options);  // which may be gone since it was measured
  if (below) measure_once(of_drive(options));
  if (asked_for && profile) check_budget(options, profile);
}

Action declare_run(Form& form) {
  const auto launch = std::make_shared<Launch>();
  launch->mode = Mode::run;
  form.rows = launch_rows(*launch);
  form.takes_command = true;
  return [launch, &form] {
    launch->command = form.command;
    prepare_run(*launch);
    return run(*launch);
  };
}

}  // namespace sentinel::cli
