// `sentinel bench`: measures the tiers, the links and memory's bandwidth.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/table_rows.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "engine/granule.h"
#include "host/bench_live.h"
#include "host/bench_nodes.h"
#include "measure/measure.h"
#include "plan/step/rates.h"
#include "sentinel/error.h"
#include "sim/machine_file.h"
#include "trace/json.h"

namespace sentinel::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Settings {
  std::string slow, size;
  std::string models, shares, only, rounds, output, picture;  // of live.py
  bool tiers_only = false, live = false, allow_tmpfs = false, json = false;
};

struct Sample {
  const char* io;
  std::size_t depth;
  TierSpeed speed;
  std::string refused;  // why there is no figure
};

constexpr std::pair<const char*, IoBackend> kBackends[] = {{"uring", IoBackend::uring},
                                                           {"threads", IoBackend::threads}};
constexpr std::size_t kDepths[] = {1, 4, 8, 16};

std::string slow_directory(const std::string& given) {
  const char* set = std::getenv("SENTINEL_DIR");
  return !given.empty() ? given : set != nullptr && *set != '\0' ? set : "/var/tmp";
}

Sample sample(const Settings& s, const std::pair<const char*, IoBackend>& backend,
              std::size_t depth) {
  Sample result{backend.first, depth, {}, {}};
  try {
    const auto bytes = std::max(round_up(parse_bytes(s.size), kGranule), kGranule);
    result.speed = measure_slow_tier(
        slow_directory(s.slow), bytes,
        {.backend = backend.second, .depth = depth, .frame_bytes = kGranule}, s.allow_tmpfs);
  } catch (const Error& error) {
    result.refused = error.what();
  }
  return result;
}

std::vector<Sample> sweep(const Settings& s, Progress& progress) {
  std::vector<Sample> samples;
  for (const auto& backend : kBackends)
    for (const auto depth : kDepths) {
      progress.now(fmt::format("{} with {} transfers in flight", backend.first, depth));
      samples.push_back(sample(s, backend, depth));
      if (!samples.back().refused.empty()) break;  // the next depth would be refused as well
    }
  return samples;
}

std::string rate(double bytes_per_second) { return fmt::format("{:.2f}", bytes_per_second / 1e9); }

std::string row(const Sample& sample) {
  if (!sample.refused.empty())
    return fmt::format("  {:<8}  refused: {}\n", sample.io, sample.refused);
  const auto& s = sample.speed;
  return fmt::format("  {:<8}  {:>5}  {:>6}  {:>6}  {:>11}  {:>10}  {:>9}\n", sample.io,
                     sample.depth, rate(s.write_bw), rate(s.read_bw), rate(s.exchange_write_bw),
                     rate(s.exchange_read_bw), print_us(s.latency_us));
}

std::string text_of(const std::string& slow, const Machine& machine,
                    const std::vector<Sample>& samples) {
  const auto &fast = machine.tiers[0], &ssd = machine.tiers[1];
  std::string text = fmt::format(
      "memory     {} GB/s copied, {}\n"
      "slow tier  {} GB/s written, {} GB/s read, {} GB/s each way at once, {} later where waited "
      "for: {}\n"
      "moving     takes {:.3f} s of computation a GB\n",
      rate(fast.read_bw), print_bytes(fast.capacity), rate(ssd.write_bw), rate(ssd.read_bw),
      rate(plan::each_way(machine, machine.links[0], 0, 1)), print_us(machine.fault_us), slow,
      machine.cpu_s_per_gb);
  if (samples.empty()) return text;
  text += "\n  GB/s      depth   write    read  both: write  both: read    latency\n";
  for (const auto& sample : samples) text += row(sample);
  return text;
}

Json sample_json(const Sample& sample) {
  Json json{{"io", sample.io}, {"depth", sample.depth}};
  if (!sample.refused.empty()) return json["refused"] = sample.refused, json;
  json.update({{"write_bw", sample.speed.write_bw},
               {"read_bw", sample.speed.read_bw},
               {"exchange_write_bw", sample.speed.exchange_write_bw},
               {"exchange_read_bw", sample.speed.exchange_read_bw},
               {"latency_us", sample.speed.latency_us}});
  return json;
}

struct Figures {
  Machine machine;
  std::vector<Sample> samples;
  std::vector<NodePair> pairs;
};

Json json_of(const std::string& slow, const Figures& figures) {
  const auto& machine = figures.machine;
  Json json{{"machine", machine.name},
            {"machine_file", sim::local_machine_path()},
            {"slow", slow},
            {"fault_us", machine.fault_us},
            {"cpu_s_per_gb", machine.cpu_s_per_gb}};
  for (const auto& tier : machine.tiers)
    json["tiers"].push_back({{"name", tier.name},
                             {"capacity", tier.capacity},
                             {"read_bw", tier.read_bw},
                             {"write_bw", tier.write_bw},
                             {"latency_us", tier.latency_us}});
  for (const auto& link : machine.links)
    json["links"].push_back(
        {{"name", link.name}, {"bw", link.bw}, {"half_duplex", link.half_duplex}});
  for (const auto& sample : figures.samples) json["mechanisms"].push_back(sample_json(sample));
  json["nodes"] = json_of(figures.pairs);
  return json;
}

void require_size(const std::string& size) try { parse_bytes(size); } catch (const Error& error) {
  throw UsageError(fmt::format("--size: {}", error.what()));
}

int live(const Settings& s) {
  if (s.tiers_only || s.allow_tmpfs || s.json || !s.size.empty())
    throw UsageError(
        "--tiers, --size, --allow-tmpfs and --json are not of --live; -o FILE writes its JSON");
  std::vector<std::string> arguments;
  const auto pass = [&](const char* name, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {name, value});
  };
  pass("--models", s.models);
  pass("--shares", s.shares);
  pass("--only", s.only);
  pass("--rounds", s.rounds);
  pass("--json", s.output);
  pass("--picture", s.picture);
  return bench_live(slow_directory(s.slow), arguments);
}

// Where the figures went. Where they cannot be kept they are printed all the same.
std::string keep(const Machine& machine) try {
  sim::write_local_machine("local", machine);
  return fmt::format("\nThe machine \"local\" is described in {}; plans for this machine use it.\n",
                     sim::local_machine_path());
} catch (const Error& error) {
  say(fmt::format("{}; plans for this machine will not find these figures", error.what()));
  return "";
}

int bench(Settings s) {
  for (const auto* given : {&s.models, &s.shares, &s.only, &s.rounds, &s.output, &s.picture})
    if (!given->empty())
      throw UsageError(
          "--models, --shares, --only, --rounds, --output and --picture are of --live");
  s.size = s.size.empty() ? "128M" : s.size;
  require_size(s.size);
  Figures figures;
  const auto slow = slow_directory(s.slow);
  {
    Progress progress;
    progress.now(fmt::format("measuring memory and {}", slow));
    figures.machine = measure_machine(slow, s.allow_tmpfs);
    figures.pairs = measure_node_pairs(parse_bytes(s.size), progress);
    if (!s.tiers_only) figures.samples = sweep(s, progress);
  }
  const auto kept = keep(figures.machine);
  if (s.json) return print(json_text(json_of(slow, figures), 1) + "\n");
  return print(text_of(slow, figures.machine, figures.samples) + text_of(figures.pairs) + kept);
}

}  // namespace

Action declare_bench(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      {"--tiers", "", "only what plans need: the tiers", &s->tiers_only},
      {"--live", "", "trainings within budgets, beside what people do today; takes hours",
       &s->live},
      {"--models", "NAME,...", "with --live: which of the seven", &s->models},
      {"--shares", "N,...", "with --live: budgets in per cent of the peak; 20,40,60 if absent",
       &s->shares},
      {"--only", "NAME,...", "with --live: contenders whose name contains one of these", &s->only},
      {"--rounds", "N", "with --live: of every training; 3 if absent", &s->rounds},
      written({"-o,--output", "FILE", "with --live: all that was measured, as JSON", &s->output}),
      written({"--picture", "FILE", "with --live: an .svg or .png", &s->picture}),
      table_row("SENTINEL_DIR", &s->slow, "$SENTINEL_DIR or /var/tmp", "DIR"),
      {"--size", "BYTES", "to write and read for each figure", &s->size},
      table_row("SENTINEL_ALLOW_TMPFS", &s->allow_tmpfs),
      {"--json", "", "the figures, for programs", &s->json},
  };
  return [s] { return s->live ? live(*s) : bench(*s); };
}

}  // namespace sentinel::cli
