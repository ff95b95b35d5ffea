// How planning and simulating grow with the trace: synthetic trainings of 10^3 to 10^6 tensors, any
// policies by name. Each cell runs in a process of its own, so that its memory is its own, and is
// killed at a limit: an unbounded run is a defect and shows as one.
//
//   growth_bench [--machine NAME] [--fast PERCENT] [--most TENSORS] [--limit SECONDS]
//                [--time-limit SECONDS] [--shape layers|tiny] [POLICY...]
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "sim/machine_file.h"
#include "sim/run.h"
#include "timing.h"
#include "tiny_training.h"
#include "unit/plan/profiles.h"

namespace sentinel::bench {
namespace {

struct Settings {
  std::string machine = "optane";
  std::uint64_t percent = 20, most = 1'000'000;
  unsigned limit_s = 120;
  double time_limit_s = 10;
  bool tiny = false;  // very many small parameters, instead of layers
  std::vector<std::string> policies;
};

struct Row {  // what a child writes into the pipe
  std::uint64_t tensors = 0, ops = 0;
  double plan_ms = 0, simulate_ms = 0, cpu_s = 0, rss_mb = 0, base_mb = 0, throughput = 0;
  char failure[160] = {};
};

double resident_mb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

double processor_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// About ten tensors a layer, nine a parameter.
Profile training_of(const Settings& s, std::uint64_t tensors) {
  if (s.tiny) return tiny_training(std::max<std::uint64_t>(tensors / 9, 1));
  return testing::random_training(
      1, {.layers = static_cast<std::uint32_t>(std::max<std::uint64_t>(tensors * 3 / 31, 2))});
}

void measure(const Settings& s, const std::string& name, std::uint64_t tensors, Row& row) {
  const Profile profile = training_of(s, tensors);
  const Machine machine = sim::find_machine(s.machine);
  row.tensors = profile.tensors.size();
  row.ops = profile.ops.size();
  row.base_mb = resident_mb();
  const PlanOptions options{.fast_bytes = peak_live_bytes(profile) * s.percent / 100,
                            .time_limit_s = s.time_limit_s};
  const auto begin = Clock::now();
  const double used = processor_s();
  const sim::Run run = sim::run(*make_policy(name), profile, machine, options, {});
  row.plan_ms = run.plan_ms;
  row.simulate_ms = ns_since(begin) / 1e6 - run.plan_ms;
  row.throughput = run.result.normalized_throughput();
  row.cpu_s = processor_s() - used;
  row.rss_mb = resident_mb();
}

Row in_child(const Settings& s, const std::string& policy, std::uint64_t tensors) {
  int ends[2];
  if (::pipe(ends) != 0) throw Error("cannot make a pipe", errno);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(s.limit_s);
    Row row;
    try {
      measure(s, policy, tensors, row);
    } catch (const std::exception& e) {
      std::strncpy(row.failure, e.what(), sizeof row.failure - 1);
    }
    const bool written = ::write(ends[1], &row, sizeof row) == sizeof row;
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  Row row{.tensors = tensors};
  if (::read(ends[0], &row, sizeof row) != sizeof row)
    std::strncpy(row.failure, fmt::format("over {} s", s.limit_s).c_str(), sizeof row.failure - 1);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return row;
}

void print(const std::string& policy, const Row& row, const Row& before) {
  const auto growth = [&](double now, double then) {
    return then > 0 ? fmt::format("{:.2f}", std::log(now / then) /
                                                std::log(static_cast<double>(row.tensors) /
                                                         static_cast<double>(before.tensors)))
                    : std::string();
  };
  if (row.failure[0] != 0) {
    fmt::print("| {} | {} | {} |\n", policy, row.tensors, row.failure);
  } else {
    fmt::print("| {} | {} | {} | {:.0f} | {:.0f} | {:.2f} | {} | {:.0f} | {} | {:.3f} |\n", policy,
               row.tensors, row.ops, row.plan_ms, row.simulate_ms, row.cpu_s,
               growth(row.cpu_s, before.cpu_s), row.rss_mb - row.base_mb,
               growth(row.rss_mb - row.base_mb, before.rss_mb - before.base_mb), row.throughput);
  }
  std::fflush(stdout);
}

Settings settings(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : "0"); };
    if (argument == "--machine")
      s.machine = value();
    else if (argument == "--fast")
      s.percent = std::stoull(value());
    else if (argument == "--most")
      s.most = std::stoull(value());
    else if (argument == "--limit")
      s.limit_s = static_cast<unsigned>(std::stoul(value()));
    else if (argument == "--time-limit")
      s.time_limit_s = std::stod(value());
    else if (argument == "--shape")
      s.tiny = value() == "tiny";
    else
      s.policies.push_back(argument);
  }
  if (s.policies.empty()) s.policies = {"sentinel"};
  return s;
}

int run(const Settings& s) {
  fmt::print(
      "Times by the clock; processor s of both; MB beyond the profile; an exponent of 1 is "
      "linear.\n\n"
      "| policy | tensors | ops | plan ms | simulate ms | cpu s | exponent | MB | exponent | of "
      "ideal "
      "|\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const std::string& policy : s.policies) {
    Row before;
    for (std::uint64_t tensors = 1000; tensors <= s.most; tensors *= 10) {
      const Row row = in_child(s, policy, tensors);
      print(policy, row, before);
      before = row;
    }
  }
  return 0;
}

}  // namespace
}  // namespace sentinel::bench

int main(int argc, char** argv) {
  return sentinel::bench::run(sentinel::bench::settings(argc, argv));
}
