// Policies on published traces, and how planning time grows: docs/results/policies.md.
//
//   policies_bench compare TRACE...           every planned policy at the machine's own fast memory
//   policies_bench artifact|host|noise|ssd|ablate TRACE...  g10 under other settings
//   policies_bench live MACHINE PROFILE...    training runs' plans, with and without replays
//   policies_bench grow                       planning and simulation of synthetic steps
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <map>
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
#include "trace/read_any.h"
#include "trace/tensor_trace.h"
#include "unit/plan/profiles.h"

namespace sentinel {
namespace {

// Of the processor: other work on the machine does not count.
double cpu_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Run {
  sim::SimResult result;
  double plan_ms = 0, sim_ms = 0;
  std::size_t wrong = 0;  // what verify() finds
};

// What a plan's moves "left over" cost where they are faults: without their promotions.
void leave_to_faults(Plan& plan) {
  std::erase_if(plan.moves, [](const Move& m) {
    return m.direction == Direction::promote && m.reason.ends_with("a page fault in G10");
  });
}

// The artifact's simulator of these two gives them four times the memory.
void quadruple_memory(Plan& plan) { plan.fast_bytes *= 4; }

Run run(const Profile& profile, const Machine& machine, std::string_view policy,
        PlanOptions options = {}, sim::SimOptions sim = {}, void (*tweak)(Plan&) = nullptr) {
  if (options.fast_bytes == 0) options.fast_bytes = machine.tiers[0].capacity;
  Run r;
  const auto made = make_policy(policy);
  const double start = cpu_ms();
  Plan plan = dynamic_cast<PlannedPolicy&>(*made).plan(profile, machine, options);
  r.plan_ms = cpu_ms() - start;
  r.wrong = plan::verify(plan, profile).size();
  if (tweak) tweak(plan);  // after verify(): it need not be a legal plan any more
  const double begin = cpu_ms();
  r.result = sim::simulate(profile, machine, plan, sim);
  r.sim_ms = cpu_ms() - begin;
  return r;
}

void print(const std::string& label, const std::function<Run()>& make) {
  try {
    const Run r = make();
    std::string traffic;
    for (const sim::Traffic& t : r.result.traffic)
      traffic +=
          fmt::format(" {}>{} {:.1f}", t.from, t.to, static_cast<double>(t.bytes) / (1 << 30));
    fmt::print("{:<24} {:>9.0f} {:>7.4f} {:>8.0f} {:>7} {:>6} {:>7} {:>8.1f} {:>8.1f} {}\n", label,
               r.result.step_us / 1e3, r.result.normalized_throughput(), r.result.stall_us / 1e3,
               r.result.demand_faults, r.result.evictions, r.wrong, r.plan_ms, r.sim_ms, traffic);
  } catch (const std::exception& e) {
    fmt::print("{:<24} {}\n", label, e.what());
  }
  std::fflush(stdout);
}

void head(const std::string& what) {
  fmt::print("\n{}\n{:<24} {:>9} {:>7} {:>8} {:>7} {:>6} {:>7} {:>8} {:>8}  traffic, GiB\n", what,
             "", "step ms", "norm", "stall ms", "faults", "evict", "wrong", "plan ms", "sim ms");
}

void compare(const Profile& profile, const Machine& machine) {
  for (const char* policy :
       {"flashneuron", "lms", "g10-gds", "g10-host", "g10", "sentinel", "ideal"})
    print(policy, [&] { return run(profile, machine, policy); });
}

TierSpec& tier(Machine& machine, std::string_view name) {
  for (TierSpec& t : machine.tiers)
    if (t.name == name) return t;
  std::abort();
}

void host(const Profile& profile, const Machine& machine) {
  for (const std::uint64_t gib : {0, 16, 32, 64, 128}) {
    Machine with = machine;
    tier(with, "host").capacity = gib * 1_GiB;
    if (gib == 0) std::erase_if(with.tiers, [](const TierSpec& t) { return t.name == "host"; });
    print(fmt::format("g10, host {} GiB", gib), [&] { return run(profile, with, "g10"); });
    print("  the rest by faults",
          [&] { return run(profile, with, "g10", {}, {}, leave_to_faults); });
  }
}

// The published artifact's two settings for its g10-gds and g10-host: five per cent more memory
// than the machine has, and GiB/s where the machine has GB/s.
void artifact(const Profile& profile, const Machine& machine) {
  Machine gib = machine;
  constexpr double kGiBs = 1.073741824;
  for (TierSpec& t : gib.tiers) t.read_bw *= kGiBs, t.write_bw *= kGiBs;
  for (LinkSpec& link : gib.links) link.bw *= kGiBs;
  for (const char* policy : {"flashneuron", "g10-gds", "g10-host", "g10"}) {
    print(policy, [&] { return run(profile, machine, policy); });
    print("  42 GiB", [&] { return run(profile, machine, policy, {.fast_bytes = 42_GiB}); });
    print("  GiB/s", [&] { return run(profile, gib, policy); });
    print("  both", [&] { return run(profile, gib, policy, {.fast_bytes = 42_GiB}); });
    print("  both, then 160 GiB",
          [&] { return run(profile, gib, policy, {.fast_bytes = 42_GiB}, {}, quadruple_memory); });
  }
}

void noise(const Profile& profile, const Machine& machine) {
  for (const int percent : {0, 5, 10, 15, 20, 25})
    for (const char* without : {"", "eager-prefetch"}) {
      const sim::SimOptions noisy{.noise = percent / 100.0, .seed = 1};
      const double ideal_us = run(profile, machine, "ideal", {}, noisy).result.step_us;
      PlanOptions options;
      if (*without) options.without = {without};
      print(fmt::format("g10, noise {} %{}", percent, *without ? ", late" : ""), [&] {
        Run r = run(profile, machine, "g10", options, noisy);
        r.result.ideal_us = ideal_us;  // the same ops, as long as the noise makes them
        return r;
      });
    }
}

void ssd(const Profile& profile, const Machine& machine) {
  for (const int times : {1, 2, 4, 8})
    for (const double gpu : {15.754e9, 31.508e9}) {
      Machine with = machine;
      tier(with, "ssd").read_bw *= times;
      tier(with, "ssd").write_bw *= times;
      for (LinkSpec& link : with.links) link.bw = gpu;
      for (const char* policy : {"flashneuron", "g10"})
        print(fmt::format("{}, ssd x{}, {:.0f} GB/s", policy, times, gpu / 1e9),
              [&] { return run(profile, with, policy); });
    }
}

void ablate(const Profile& profile, const Machine& machine) {
  for (const std::vector<std::string>& without : {std::vector<std::string>{},
                                                  {"eager-prefetch"},
                                                  {"host-tier"},
                                                  {"eager-prefetch", "host-tier"}})
    print(fmt::format("g10 without {}", fmt::join(without, ", ")), [&] {
      PlanOptions options;
      options.without = without;
      return run(profile, machine, "g10", options);
    });
}

constexpr double kLiveSeconds = 2;  // for each plan

// What a training run's planner asks for (libsentinel/runtime/planner.cpp).
PlanOptions live_options(std::uint64_t budget, bool replays) {
  return {.fast_bytes = budget,
          .threads = 1,
          .time_limit_s = kLiveSeconds,
          .recompute = replays,
          .judge = sim::judge(),
          .parts = false,
          .copies = false,
          .in_place = false};
}

std::string live_cell(const Profile& profile, const Machine& machine, std::string_view policy,
                      std::uint64_t budget, bool replays) {
  try {
    const auto made = make_policy(policy);
    const PlanOptions options = live_options(budget, replays);
    const Plan plan = dynamic_cast<PlannedPolicy&>(*made).plan(profile, machine, options);
    const std::size_t wrong = plan::verify(plan, profile, machine).size();
    const sim::SimResult result = sim::simulate(profile, machine, plan, {});
    return fmt::format("{:>9.0f} {:>7} {:>7} {:>8.0f}", result.step_us / 1e3,
                       wrong == 0 ? "valid" : "INVALID", plan.recomputations.size(),
                       result.recompute_us / 1e3);
  } catch (const Error& e) {
    return fmt::format("{:>9} {:>7} {:>7} {:>8}", "refused", "", "", "");
  }
}

void live(const Profile& profile, const Machine& machine) {
  const double ideal = ideal_us(profile) / 1e3;
  fmt::print("  ops take {:.0f} ms, the peak is {}\n", ideal,
             print_bytes(peak_live_bytes(profile)));
  for (const std::uint64_t percent : {20, 30, 40}) {
    const std::uint64_t budget = peak_live_bytes(profile) / 100 * percent;
    const auto bound = [&](bool replays) {
      return plan::lower_bound(profile, machine,
                               {.fast_bytes = budget, .recompute = replays, .time_limit_s = 1})
                 .step_us /
             1e3;
    };
    fmt::print("  {} %, bound {:.0f} ms, with replays {:.0f}\n", percent, bound(false),
               bound(true));
    for (const char* policy : {"sentinel", "g10", "home", "capuchin", "superneurons", "auto"}) {
      fmt::print("    {:<14} {} | {}\n", policy, live_cell(profile, machine, policy, budget, false),
                 live_cell(profile, machine, policy, budget, true));
      std::fflush(stdout);
    }
  }
}

void grow() {
  const Machine machine = sim::find_machine("a100-g10");
  for (const char* policy : {"g10", "g10-gds", "flashneuron", "lms"}) {
    head(fmt::format("{}, synthetic, 95 % of the peak", policy));
    for (const std::uint32_t layers : {60, 600, 6000, 60000}) {
      const Profile profile =
          testing::random_training(3, {.layers = layers, .ops_per_layer = 3, .largest = 64_MiB});
      const std::uint64_t budget = peak_live_bytes(profile) / 20 * 19;
      print(fmt::format("{} tensors", profile.tensors.size()), [&] {
        return run(profile, machine, policy, {.fast_bytes = budget, .time_limit_s = 600});
      });
    }
  }
}

}  // namespace
}  // namespace sentinel

int main(int argc, char** argv) {
  using namespace sentinel;
  const std::string what = argc > 1 ? argv[1] : "";
  const std::map<std::string, void (*)(const Profile&, const Machine&)> tables{
      {"compare", compare}, {"artifact", artifact}, {"host", host},
      {"noise", noise},     {"ssd", ssd},           {"ablate", ablate}};
  if (what == "grow") return grow(), 0;
  if (what == "live" && argc > 3) {
    Machine machine = sim::find_machine(argv[2]);
    machine.granule_bytes = 2_MiB;
    machine.exclusive = true;
    fmt::print("{:<18} {:>9} {:>7} {:>7} {:>8} | with replays\n", "", "step ms", "", "replays",
               "take ms");
    for (int i = 3; i < argc; ++i) {
      fmt::print("{}\n", argv[i]);
      live(read_any(argv[i]), machine);
    }
    return 0;
  }
  if (!tables.contains(what) || argc < 3)
    return fmt::print(stderr,
                      "policies_bench compare|artifact|host|noise|ssd|ablate TRACE... | live "
                      "MACHINE PROFILE... "
                      "| grow\n"),
           2;
  const Machine machine = sim::find_machine("a100-g10");
  for (int i = 2; i < argc; ++i) {
    head(argv[i]);
    tables.at(what)(read_tensor_trace(argv[i]), machine);
  }
}
