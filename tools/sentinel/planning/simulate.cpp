// `simulate` and, with every policy by default, `compare`.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "cli/inputs.h"
#include "cli/table_rows.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "planning/bounds.h"
#include "planning/jobs.h"
#include "planning/simulation.h"
#include "planning/sweep.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sim/machine_file.h"
#include "trace/read_any.h"

namespace sentinel::cli {
namespace {

struct Settings {
  std::string file, machine, fast, sweep, jobs, html;
  std::vector<std::string> policies, without;
  std::uint64_t steps = 3, seed = 0, effort = 0;
  double time_limit = 10, noise = 0, target = 0;
  bool no_recompute = false;
  bool json = false, csv = false, features = false;
  bool ranked = false;  // the best policy first
};

PlanOptions plan_options(const Settings& s, std::uint64_t fast_bytes) {
  return {.fast_bytes = fast_bytes,
          .seed = s.seed,
          .effort = s.effort,
          .time_limit_s = s.time_limit,
          .recompute = !s.no_recompute,
          .judge = sim::judge(),
          .without = s.without};
}

void check(const Settings& s) {
  if (s.target < 0 || s.target > 1)
    throw UsageError("--target is a share of the ideal throughput, as 0.95");
  if (s.steps == 0) throw UsageError("--steps 0: at least one step has to run");
  if (s.noise >= 100) throw UsageError("--noise is in per cent of an op's time, below 100");
  if (!s.jobs.empty() && (s.target != 0 || !s.sweep.empty()))
    throw UsageError("--jobs goes with neither --sweep nor --target");
  if (!s.jobs.empty() && (!s.html.empty() || s.csv || s.features))
    throw UsageError("--jobs goes with neither --html, --csv nor --features");
  if (s.json && s.csv) throw UsageError("--json and --csv both go to stdout: choose one");
  policies_of(s.policies);
}

Scenario scenario_of(const Settings& s, const Profile& profile) {
  auto machine = sim::find_machine(s.machine);
  auto plan = plan_options(s, budget_bytes(s.fast, profile, machine));
  return {profile, std::move(machine), std::move(plan), static_cast<std::uint32_t>(s.steps),
          s.noise / 100};
}

// Several trainings at once. A share of fast memory is one of their peaks together.
int simulate_jobs(const Settings& s) {
  auto scenario = JobsScenario{.jobs = parse_jobs(s.jobs, s.file),
                               .machine = sim::find_machine(s.machine),
                               .steps = static_cast<std::uint32_t>(s.steps),
                               .noise = s.noise / 100};
  load(scenario);
  scenario.plan = plan_options(s, jobs_budget_bytes(s.fast, scenario));
  std::vector<JobsTrial> trials;
  Progress progress;
  for (const auto& policy : policies_of(s.policies)) {
    progress.now(policy);
    trials.push_back(try_jobs(scenario, policy));
  }
  print(s.json ? jobs_json(scenario, s.file, trials) : jobs_text(scenario, trials));
  return trials.size() == 1 && !trials.front().result && !s.json ? kFailed : kDone;
}

// A policy as it is, or with one more of its features left out.
struct Contender {
  std::string policy, without;
};

std::vector<Contender> contenders_of(const Settings& s) {
  std::vector<Contender> all;
  for (const auto& policy : policies_of(s.policies)) {
    all.push_back({policy, ""});
    if (!s.features) continue;
    for (const auto feature : make_policy(policy)->features())
      if (std::ranges::find(s.without, feature) == s.without.end())
        all.push_back({policy, std::string(feature)});
  }
  return all;
}

PolicyTrial trial_at(const Settings& s, const Variant& variant, const std::string& policy) {
  if (s.target == 0) {
    auto trial = try_policy(variant.scenario, policy);
    trial.variant = variant.name;
    return trial;
  }
  auto trial = smallest_budget(variant.scenario, policy, s.target);
  if (!trial)
    return {.policy = policy,
            .reason = fmt::format("no budget reaches {} of the ideal throughput", s.target)};
  trial->variant =
      fmt::format("{}{}fast={}", variant.name, variant.name.empty() ? "" : " ", trial->fast_bytes);
  return *trial;
}

PolicyTrial one_trial(const Settings& s, Variant variant, const Contender& contender) {
  if (!contender.without.empty()) variant.scenario.plan.without.push_back(contender.without);
  auto trial = trial_at(s, variant, contender.policy);
  trial.without = contender.without;
  trial.at = variant.at;
  return trial;
}

// By throughput, or by the smallest budget for a target; then what is not feasible.
void rank(std::span<PolicyTrial> trials, bool for_target) {
  std::ranges::stable_sort(trials, {}, [&](const PolicyTrial& trial) {
    const double cost = !trial.result ? 0
                        : for_target  ? static_cast<double>(trial.fast_bytes)
                                      : trial.result->step_us;
    return std::pair(!trial.result, cost);
  });
}

std::vector<PolicyTrial> trials_of(const Settings& s, const std::vector<Variant>& variants) {
  std::vector<PolicyTrial> trials;
  Bounds bounds;
  Progress progress;
  const auto contenders = contenders_of(s);
  for (const auto& variant : variants) {
    for (const auto& contender : contenders) {
      progress.now(fmt::format("{} {} {}", contender.policy, variant.name, contender.without));
      trials.push_back(one_trial(s, variant, contender));
      bounds.set(variant.scenario, variant.name, trials.back());
    }
    if (s.ranked) rank(std::span(trials).last(contenders.size()), s.target != 0);
  }
  return trials;
}

// A sweep's page shows its curve instead of timelines.
std::size_t strip_parts(const Settings& s) {
  constexpr std::size_t kFinest = 1000, kCoarsest = 200, kPoints = 40'000;  // in all: some 2 MB
  if (s.html.empty() || !s.sweep.empty()) return 0;
  return std::clamp(kPoints / contenders_of(s).size(), kCoarsest, kFinest);
}

void warn_of_largest_op(const std::vector<Variant>& variants) {
  const auto& least = std::ranges::min_element(variants, {}, [](const Variant& v) {
                        return v.scenario.plan.fast_bytes;
                      })->scenario;
  if (const auto largest = largest_op(least); !largest.fits)
    say(too_large(least, largest) +
        "; where a policy goes on, what finds no room passes through it while the op computes");
}

std::string rendered(const Settings& s, const Scenario& scenario,
                     const std::vector<PolicyTrial>& trials) {
  if (s.json) return trials_json(scenario, s.file, trials);
  if (s.csv) return trials_csv(trials);
  auto text = trials_text(scenario, trials);
  if (!s.html.empty()) text += fmt::format("The page: {}\n", printable(s.html));
  return text;
}

// Op times of a trace that needed no machine are estimates for one, which its note names.
void warn_of_other_machine(const Settings& s, const Profile& profile, const Machine& machine) {
  constexpr std::string_view kNote = "op times are estimates for ";
  const std::string_view note = profile.meta.incomplete_reason;
  if (!note.starts_with(kNote)) return;
  const auto name = note.substr(kNote.size(), note.find(';') - kNote.size());
  if (name != machine.name)
    say(fmt::format("{}: {}, and not for {}; sentinel trace --machine {} makes others",
                    printable(s.file), printable(std::string(note)), machine.name, s.machine));
}

// A single policy that cannot work is a failure; among several it is a row of the table.
int simulate(const Settings& s) {
  check(s);
  if (!s.jobs.empty()) return simulate_jobs(s);
  const auto profile = read_any(s.file);
  if (profile.ops.empty())
    throw Error(fmt::format("{} holds no operation: there is nothing to simulate", s.file));
  if (s.target != 0 && ideal_us(profile) <= 0)
    throw Error(fmt::format(
        "{} tells no op's time: there is no throughput of which --target could be a share",
        s.file));
  auto scenario = scenario_of(s, profile);
  warn_of_other_machine(s, profile, scenario.machine);
  scenario.strip_parts = strip_parts(s);
  const auto variants = variants_of(scenario, s.sweep);
  warn_of_largest_op(variants);
  const auto trials = trials_of(s, variants);
  if (trials.size() == 1 && !trials.front().result && !s.json && !s.csv)
    throw Error(
        fmt::format("{} cannot work here: {}", trials.front().policy, trials.front().reason));
  if (!s.html.empty()) print_to(s.html, trials_html(scenario, swept(s.sweep), trials));
  return print(rendered(s, scenario, trials));
}

Action declare(Form& form, std::vector<std::string> policies, bool ranked) {
  const auto s = std::make_shared<Settings>();
  s->policies = std::move(policies);
  s->ranked = ranked;
  form.rows = {
      {"FILE", "FILE", "a profile, or a tensor trace", &s->file, true},
      {"--machine", "NAME|FILE", "on which to run it", &s->machine, true},
      {"--policy", "NAME,...", "the policies to try, or all", &s->policies},
      table_row("SENTINEL_FAST", &s->fast, "the machine's own"),
      {"--no-recompute", "", "moves only", &s->no_recompute},
      {"--without", "FEATURE", "leave out a feature of the policy; may be repeated", &s->without},
      {"--steps", "N", "steps to run; the last one is shown", &s->steps},
      {"--sweep", "WHAT=V,...", "vary fast, host, ssd-bw or interval; ranges as 10%..100%",
       &s->sweep},
      {"--target", "SHARE", "the smallest budget with that share of the ideal throughput",
       &s->target},
      {"--time-limit", "SECONDS", "for each policy's planning", &s->time_limit},
      {"--seed", "N", "of policies that search, and of the noise", &s->seed},
      {"--jobs", "A@0,B@5s", "several trainings at once: files and when they begin", &s->jobs},
      {"--noise", "PCT", "op times vary by up to so many per cent", &s->noise},
      {"--effort", "N", "bound of a policy's search, in its own unit", &s->effort},
      {"--features", "", "also each policy with each of its features left out", &s->features},
      written({"--html", "OUT", "a page: the table, and timelines or the sweep's curve", &s->html}),
      {"--csv", "", "a row for each, for spreadsheets", &s->csv},
      {"--json", "", "all of it, for programs", &s->json},
  };
  return [s] { return simulate(*s); };
}

}  // namespace

Action declare_simulate(Form& form) { return declare(form, {"sentinel"}, false); }
Action declare_compare(Form& form) { return declare(form, {"all"}, true); }

}  // namespace sentinel::cli
