// One profile on one machine under several policies and budgets, as JSON lines for optane.py: the
// step time, what moved, what was used in place, and the bandwidth of each tier over the step.
//
//   optane_bench PROFILE --machine NAME --fast 20,30 --policies a,b [--step-us US] [--bins N]
//                [--without FEATURE]
//
// --step-us scales all op times so that they sum up to that.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "sim/machine_file.h"
#include "sim/run.h"
#include "trace/read_any.h"

namespace sentinel::bench {
namespace {

using nlohmann::json;

struct Settings {
  std::string profile, machine = "optane";
  std::vector<std::string> fast{"20"}, policies{"sentinel"}, without;
  double step_us = 0;
  std::size_t bins = 0;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

// GB/s in equal parts of the step: what ops touch in fast and in slow memory, and what moves.
json bandwidth(const sim::SimResult& r, std::size_t bins) {
  std::vector<double> fast(bins, 0), slow(bins, 0), moved(bins, 0);
  const double width = r.step_us / static_cast<double>(bins);
  const auto spread = [&](std::vector<double>& to, double begin, double end, double bytes) {
    for (std::size_t b = 0; b < bins; ++b) {
      const double from = static_cast<double>(b) * width, until = from + width;
      const double shared = std::min(end, until) - std::max(begin, from);
      if (shared > 0) to[b] += bytes * shared / std::max(end - begin, 1e-9) / width / 1e3;
    }
  };
  for (const auto& use : r.timeline.uses) {
    spread(fast, use.begin_us, use.end_us, use.fast_bytes);
    spread(slow, use.begin_us, use.end_us, use.slow_bytes);
  }
  for (const auto& t : r.timeline.transfers)
    spread(moved, t.begin_us, t.end_us, static_cast<double>(t.bytes));
  return {{"fast", fast}, {"slow", slow}, {"moved", moved}};
}

json row(const Settings& s, const Profile& profile, const Machine& machine,
         const std::string& policy, const std::string& percent) {
  json line{{"policy", policy}, {"fast_percent", std::stod(percent)}};
  const PlanOptions options{
      .fast_bytes = static_cast<std::uint64_t>(static_cast<double>(peak_live_bytes(profile)) *
                                               std::stod(percent) / 100),
      .without = s.without};
  line["fast_bytes"] = options.fast_bytes;
  try {
    const sim::Run run =
        sim::run(*make_policy(policy), profile, machine, options, {.steps = 5, .timeline = true});
    const sim::SimResult& r = run.result;
    double fast = 0, slow = 0;
    for (const auto& use : r.timeline.uses) {
      fast += use.fast_bytes;
      slow += use.slow_bytes;
    }
    std::uint64_t moved = 0;
    for (const auto& t : r.traffic) moved += t.bytes;
    line.update({{"step_us", r.step_us},
                 {"ideal_us", r.ideal_us},
                 {"plan_ms", run.plan_ms},
                 {"peak_fast_bytes", r.peak_fast_bytes},
                 {"moved_bytes", moved},
                 {"touched_fast_bytes", fast},
                 {"touched_slow_bytes", slow}});
    if (s.bins > 0) line["gb_per_s"] = bandwidth(r, s.bins);
  } catch (const Error& e) {
    line["reason"] = e.what();
  }
  return line;
}

Settings settings(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (argument == "--machine")
      s.machine = value();
    else if (argument == "--fast")
      s.fast = split(value());
    else if (argument == "--policies")
      s.policies = split(value());
    else if (argument == "--without")
      s.without.push_back(value());
    else if (argument == "--step-us")
      s.step_us = std::stod(value());
    else if (argument == "--bins")
      s.bins = std::stoul(value());
    else
      s.profile = argument;
  }
  return s;
}

int run(const Settings& s) {
  Profile profile = read_any(s.profile);
  if (s.step_us > 0) {
    const double scale = s.step_us / ideal_us(profile);
    for (Op& op : profile.ops) op.us *= scale;
  }
  const Machine machine = sim::find_machine(s.machine);
  for (const std::string& percent : s.fast)
    for (const std::string& policy : s.policies)
      fmt::print("{}\n", row(s, profile, machine, policy, percent).dump());
  return 0;
}

}  // namespace
}  // namespace sentinel::bench

int main(int argc, char** argv) try {
  return sentinel::bench::run(sentinel::bench::settings(argc, argv));
} catch (const std::exception& e) {
  std::fprintf(stderr, "optane_bench: %s\n", e.what());
  return 1;
}
