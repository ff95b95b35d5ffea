// How good a plan the searching policies find in how much time, what their own cost model says of
// it and what the simulator says.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/units.h"
#include "plan/bound/bound.h"
#include "plan/check/verify.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "sim/machine_file.h"
#include "sim/simulator.h"
#include "timing.h"
#include "trace/tensor_trace.h"
#include "unit/plan/profiles.h"

namespace sentinel::bench {
namespace {

struct Subject {
  std::string name;
  Profile profile;
  Machine machine;
  std::uint64_t fast_bytes = 0;
  double bound = 0;  // of the normalized throughput
};

struct Settings {
  std::string times = "0.1,1,10";
  double published_s = 0;
  std::string policies = "home,swapadvisor,superneurons";
  std::string machine = "a100-g10", fast;
  std::vector<std::string> traces;
  std::uint32_t random = 3;  // trainings
  std::uint64_t share = 85;  // per cent of their peak
  double bandwidth = 3;      // of their slow tier, GB/s
  bool moves_only = false, without_floor = false;
};

std::vector<std::string> parts(const std::string& list) {
  std::vector<std::string> result;
  std::istringstream in(list);
  for (std::string part; std::getline(in, part, ',');) result.push_back(part);
  return result;
}

void print_row(const Subject& s, const std::string& label, const PlanOptions& options,
               const std::string& policy) {
  const auto made = make_policy(policy);
  const auto begin = Clock::now();
  try {
    const Plan plan = dynamic_cast<PlannedPolicy&>(*made).plan(s.profile, s.machine, options);
    const double seconds = ns_since(begin) / 1e9;
    const auto wrong = plan::verify(plan, s.profile);
    const sim::SimResult r = sim::simulate(s.profile, s.machine, plan);
    fmt::print(
        "| {} | {} | {:.2f} | {} | {:.1f} | {:.1f} | {:+.1f} | {:.3f} | {:.3f} | {:.1f} | {:.1f} "
        "|{}\n",
        s.name, label, seconds, plan.effort, plan.predicted_step_us / 1e3, r.step_us / 1e3,
        100 * (plan.predicted_step_us / r.step_us - 1), r.normalized_throughput(), s.bound,
        100 * (1 - r.normalized_throughput() / s.bound), r.recompute_us / 1e3,
        wrong.empty() ? "" : " " + wrong.front());
  } catch (const Error& e) {
    fmt::print("| {} | {} | {:.2f} | infeasible: {} |\n", s.name, label, ns_since(begin) / 1e9,
               e.what());
  }
  std::fflush(stdout);
}

void print_subject(const Subject& s, const Settings& settings) {
  PlanOptions options{
      .fast_bytes = s.fast_bytes, .recompute = !settings.moves_only, .judge = sim::judge()};
  if (settings.without_floor) options.without = {"floor"};
  for (const std::string& policy : parts(settings.policies))
    for (const std::string& time : parts(settings.times)) {
      options.time_limit_s = std::stod(time);
      print_row(s, fmt::format("{}, {} s", policy, time), options, policy);
    }
  if (settings.published_s > 0) {
    options.time_limit_s = settings.published_s;
    options.without = {"seeds"};
    print_row(s, "home as published", options, "home");
  }
}

std::vector<Subject> subjects(const Settings& settings) {
  std::vector<Subject> list;
  for (const std::string& path : settings.traces) {
    Subject s{path.substr(path.find_last_of('/') + 1), read_tensor_trace(path),
              sim::find_machine(settings.machine)};
    s.fast_bytes = settings.fast.empty() ? s.machine.tiers[0].capacity : parse_bytes(settings.fast);
    list.push_back(std::move(s));
  }
  for (std::uint32_t seed = 1; seed <= settings.random; ++seed) {
    Subject s{fmt::format("random training {}", seed),
              testing::random_training(seed, {.layers = 100}),
              testing::two_tiers(4096, settings.bandwidth)};
    s.fast_bytes = peak_live_bytes(s.profile) * settings.share / 100;
    list.push_back(std::move(s));
  }
  for (Subject& s : list)
    s.bound = ideal_us(s.profile) /
              plan::lower_bound(s.profile, s.machine,
                                {.fast_bytes = s.fast_bytes, .recompute = !settings.moves_only})
                  .step_us;
  return list;
}

int run(int argc, char** argv) {
  Settings settings;
  CLI::App app("Plan quality against planning time");
  app.add_option("traces", settings.traces, "tensor traces");
  app.add_option("--times", settings.times, "time limits in seconds, by commas");
  app.add_option("--published", settings.published_s, "time for HOME's search as published");
  app.add_option("--policy", settings.policies, "names, by commas");
  app.add_option("--machine", settings.machine);
  app.add_option("--fast", settings.fast);
  app.add_option("--random", settings.random, "random trainings");
  app.add_option("--share", settings.share, "budget of random trainings, per cent of their peak");
  app.add_option("--bandwidth", settings.bandwidth, "GB/s of the slow tier of random trainings");
  app.add_flag("--no-recompute", settings.moves_only, "plans and bounds without replays");
  app.add_flag("--no-floor", settings.without_floor, "without the plans of other policies");
  CLI11_PARSE(app, argc, argv);
  fmt::print(
      "| trace | policy | s | effort | predicted ms | simulated ms | error % | normalized | "
      "bound | gap % | recomputed ms |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Subject& s : subjects(settings)) print_subject(s, settings);
  return 0;
}

}  // namespace
}  // namespace sentinel::bench

int main(int argc, char** argv) {
  try {
    return sentinel::bench::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "search_bench: {}\n", e.what());
    return 1;
  }
}
