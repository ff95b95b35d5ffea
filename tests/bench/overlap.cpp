// How near the engine of a GPU's memory comes to perfect overlap, in virtual time
// (unit/engine/gpu/virtual_gpu.h): profiled steps under a plan for a share of their peak, on a
// device whose copies, maps and unmaps take stated times. docs/results/gpu-overlap.md.
//
//   overlap_bench [--share N] [--policy NAME] [--time-limit S] [--granule MIB] [--faster N]
//                 [--map US] [--unmap US] [--per-chunk US] [--ahead N] [--queue N] [--queued N]
//                 [--waits] FILE...
//
// FILE: a profile or a trace. --faster: its op times are divided by that, for a profile of a
// processor; --larger: what is made within the step, and then op times, too, are so many times
// larger, for a batch that fills a GPU. --per-chunk: what each chunk after the first adds to a call
// that maps or unmaps. --ahead: kernels that a stream's queue holds; --queue: commands of any
// kind; --queued: those that the engine gives one of its own streams ahead of need.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "plan/bound/bound.h"
#include "plan/check/verify.h"
#include "trace/read_any.h"
#include "unit/runtime/gpu/virtual_training.h"

namespace sentinel::bench {
namespace {

struct Settings {
  double share = 40, time_limit_s = 10, faster = 1, larger = 1, per_chunk_us = 0;
  std::uint64_t granule_mib = 2, ahead = 1000, queue = 1024, queued = gpu::PoolOptions().queued;
  double map_us = 45, unmap_us = 35;
  std::string policy = "sentinel";
  bool waits = false;
  std::vector<std::string> files;
};

// No kernel is shorter.
constexpr double kLeastUs = 3;

void run(const Settings& settings, const std::string& file) {
  auto profile = read_any(file);
  if (settings.faster != 1)
    for (auto& op : profile.ops)
      op.us = std::max(op.us * settings.larger / settings.faster, kLeastUs);
  for (auto& tensor : profile.tensors)
    if (tensor.alloc_op)
      tensor.bytes =
          static_cast<std::uint64_t>(static_cast<double>(tensor.bytes) * settings.larger);
  profile = rig::for_gpu(std::move(profile));
  const gpu::VirtualCosts costs{.map_us = settings.map_us,
                                .unmap_us = settings.unmap_us,
                                .map_more_us = settings.per_chunk_us,
                                .ahead = settings.ahead,
                                .queue = settings.queue};
  const auto granule = settings.granule_mib << 20;
  const auto machine = rig::virtual_machine(costs, granule);
  const auto peak = peak_live_bytes(profile);
  auto budget = static_cast<std::uint64_t>(static_cast<double>(peak) * settings.share / 100);
  const auto plan_for_budget = [&] {
    return rig::virtual_plan(profile, machine, budget, settings.policy, settings.time_limit_s);
  };
  auto plan = plan_for_budget();
  if (!plan.streamed_ops.empty()) {  // a GPU streams no op
    budget = plan.smallest_unstreamed_budget;
    plan = plan_for_budget();
  }
  if (const auto wrong = plan::verify(plan, profile); !wrong.empty())
    throw Error("the plan is not valid: " + wrong.front());
  const double ideal = ideal_us(profile),
               simple = rig::simple_bound_us(profile, budget, costs.bytes_per_us),
               least = plan::lower_bound(profile, machine, {.fast_bytes = budget}).step_us,
               fluid = sim::judge()(profile, machine, plan).step_us;
  rig::VirtualTraining training(profile, plan, costs, granule, settings.queued);
  const auto step = training.train(4);
  const auto gib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1ull << 30); };
  fmt::print(
      "| {} | {:.2f} | {:.0f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:+.1f} | {:+.1f} | "
      "{:.2f}, {:.2f} | {}, {} | {} | {} |\n",
      std::filesystem::path(file).filename().string(), gib(peak), 100 * gib(budget) / gib(peak),
      ideal / 1e3, simple / 1e3, least / 1e3, fluid / 1e3, step.step_us / 1e3,
      100 * (step.step_us / simple - 1), 100 * (step.step_us / fluid - 1), gib(step.in_bytes),
      gib(step.out_bytes), step.counts.maps, step.counts.unmaps, step.faults,
      step.complaints.empty() ? "" : step.complaints.front());
  if (settings.waits) {
    double in = 0, out = 0;
    for (const auto& move : plan.moves)
      (move.direction == Direction::promote ? in : out) +=
          gib(profile.tensors[move.tensor.index()].bytes);
    fmt::print("  {} calls found a queue full\n", step.counts.held_up);
    fmt::print("  plan: {:.2f} GiB in, {:.2f} out, {} moves, {} streamed\n", in, out,
               plan.moves.size(), plan.streamed_ops.size());
  }
  for (std::size_t op = 0; settings.waits && op < profile.ops.size(); ++op)
    if (training.waits_us[op] > 0.002 * step.step_us)
      fmt::print("  op {} {} ({:.1f} ms) waited {:.1f} ms\n", op, profile.ops[op].name,
                 profile.ops[op].us / 1e3, training.waits_us[op] / 1e3);
  std::fflush(stdout);
}

}  // namespace
}  // namespace sentinel::bench

int main(int argc, char** argv) {
  using namespace sentinel::bench;
  Settings settings;
  CLI::App app("Overlap on a GPU, simulated");
  app.add_option("files", settings.files)->required();
  app.add_option("--share", settings.share);
  app.add_option("--policy", settings.policy);
  app.add_option("--time-limit", settings.time_limit_s);
  app.add_option("--granule", settings.granule_mib);
  app.add_option("--faster", settings.faster);
  app.add_option("--larger", settings.larger);
  app.add_option("--per-chunk", settings.per_chunk_us);
  app.add_option("--ahead", settings.ahead);
  app.add_option("--queue", settings.queue);
  app.add_option("--queued", settings.queued);
  app.add_option("--map", settings.map_us);
  app.add_option("--unmap", settings.unmap_us);
  app.add_flag("--waits", settings.waits, "ops that waited");
  CLI11_PARSE(app, argc, argv);
  fmt::print(
      "| step | peak GiB | % | ideal ms | bound | least | plan | engine | over bound % | over plan "
      "% | "
      "GiB in, out | maps, unmaps | faults | |\n| {} |\n",
      "--- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | ---");
  for (const auto& file : settings.files) try {
      run(settings, file);
    } catch (const std::exception& error) {
      fmt::print("| {} | {} |\n", file, error.what());
    }
}
