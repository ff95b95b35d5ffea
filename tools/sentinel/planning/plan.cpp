// `sentinel plan`: makes a plan for a machine and a budget, and writes it.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/output.h"
#include "base/text.h"
#include "cli/inputs.h"
#include "cli/table_rows.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "engine/granule.h"
#include "plan/check/made_again.h"
#include "plan/check/plan_file.h"
#include "plan/check/verify.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "sim/machine_file.h"
#include "sim/simulator.h"
#include "trace/read_any.h"

namespace sentinel::cli {
namespace {

struct Settings {
  std::string file, output, fast, policy = "sentinel", machine = "local";
  std::uint64_t interval = 0, seed = 0;
  double time_limit = 10;
  std::vector<std::string> without;
  bool no_recompute = false;
};

// A plan may be replaced, nothing else.
void require_writable_plan(const std::string& path) {
  output_place(path, fmt::format("cannot write plan {}", path));
  try {
    if (std::filesystem::exists(path)) plan::read_plan(path);
  } catch (const Error&) {
    throw Error(
        fmt::format("{} exists and is not a plan; it is left as it is: name another one with "
                    "-o",
                    path));
  }
}

Plan make_plan(const Settings& s, const Profile& profile) {
  const auto machine = sim::find_machine(s.machine);
  // What a training run executes: moves of whole tensors, when they leave.
  const bool here = machine.granule_bytes == kGranule;
  const auto why_not = plan::why_no_replays(machine.name, profile.meta);
  const PlanOptions options{.fast_bytes = budget_bytes(s.fast, profile, machine),
                            .max_interval_layers = static_cast<std::uint32_t>(s.interval),
                            .seed = s.seed,
                            .time_limit_s = s.time_limit,
                            .recompute = !s.no_recompute && (!here || why_not.empty()),
                            .judge = sim::judge(),
                            .parts = !here,
                            .copies = !here,
                            .in_place = !here,
                            .without = s.without};
  auto made = planned_policy(s.policy)->plan(profile, machine, options);
  if (const auto wrong = plan::verify(made, profile, machine); !wrong.empty())
    throw Error(fmt::format(
        "the plan that policy {} made is not valid ({} objections), for one: {}; this is a defect "
        "of Sentinel, please report it",
        s.policy, wrong.size(), wrong.front()));
  made.profile_path = std::filesystem::canonical(s.file);
  return made;
}

// On this machine's SSD, or between its nodes: those plans name the tiers themselves.
bool runs_here(const Plan& plan) {
  return plan.granule_bytes == kGranule && !plan.machine.starts_with("local-");
}

int make(const Settings& s) {
  require_writable_plan(s.output);
  const auto profile = read_any(s.file);
  const auto made = make_plan(s, profile);
  plan::write_plan(s.output, made);
  auto text = fmt::format(
      "{}: policy {}, {} of fast memory (at most {} used), {} moves a step, step predicted "
      "{}\nNext\n"
      "  sentinel explain {}\n",
      printable(s.output), printable(made.policy), print_bytes(made.fast_bytes),
      print_bytes(made.peak_fast_bytes), made.moves.size(), print_us(made.predicted_step_us),
      printable(s.output));
  const bool trains = profile.meta.source != "trace" && !profile.meta.command.empty();
  if (runs_here(made))
    text += fmt::format("  sentinel run --plan {} -- {}\n", printable(s.output),
                        trains ? printable(profile.meta.command) : "CMD");
  return print(text);
}

}  // namespace

Action declare_plan(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      {"FILE", "FILE", "a profile, or a tensor trace", &s->file, true},
      written({"-o,--output", "PLAN", "where the plan goes", &s->output, true}),
      table_row("SENTINEL_FAST", &s->fast, "the machine's own"),
      table_row("SENTINEL_POLICY", &s->policy),
      table_row("SENTINEL_MACHINE", &s->machine, "this machine, as measured"),
      table_row("SENTINEL_RECOMPUTE", &s->no_recompute),
      {"--interval", "LAYERS", "migration intervals of at most so many layers; 0 for any",
       &s->interval},
      {"--without", "FEATURE", "leave out a feature of the policy; may be repeated", &s->without},
      {"--seed", "N", "of policies that search", &s->seed},
      {"--time-limit", "SECONDS", "the best plan found until then", &s->time_limit},
  };
  return [s] { return make(*s); };
}

}  // namespace sentinel::cli
