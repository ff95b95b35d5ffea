// Replays the allocations of one training step against several allocators, each in a process of its
// own: time of an allocation and its free, and resident memory at its peak.
//
//   alloc_replay_bench [--log FILE] [--factor N] [--rounds N]
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "allocation_log.h"
#include "base/units.h"
#include "engine/ssd/ssd_engine.h"
#include "plan/check/plan_file.h"
#include "runtime/step/space.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "sim/machine_file.h"
#include "timing.h"

namespace sentinel::bench {
namespace {

constexpr std::uint64_t kPage = 4096;

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* allocate(std::uint32_t tensor, std::uint64_t bytes) = 0;
  virtual void release(void* address) = 0;
};

class Malloc final : public Allocator {  // as PyTorch's default allocator does
 public:
  void* allocate(std::uint32_t, std::uint64_t bytes) override {
    void* address = nullptr;
    return posix_memalign(&address, 64, bytes) == 0 ? address : nullptr;
  }
  void release(void* address) override { free(address); }
};

std::vector<PlannedSlot> slots_of(const Profile& profile, const Plan& plan) {
  std::vector<PlannedSlot> slots(profile.tensors.size());
  for (const auto& placement : plan.placements)
    slots[placement.tensor.index()] = {
        .offset = placement.offset,
        .bytes = profile.tensors[placement.tensor.index()].bytes,
        .placed = true,
        .shared = plan.groups[placement.group.index()].pool != Pool::long_lived};
  return slots;
}

class Arena final : public Allocator {
 public:
  Arena() : engine_({.slow_directory = "/var/tmp", .arena_bytes = 256_GiB}), space_(engine_) {}

  void follow(const Profile& profile) {
    auto machine = sim::find_machine("a100-g10");
    machine.granule_bytes = kGranule;
    auto policy = make_policy("sentinel");
    const auto plan =
        dynamic_cast<PlannedPolicy&>(*policy).plan(profile, machine, {.fast_bytes = 64_GiB});
    space_.activate(space_.add_plan(slots_of(profile, plan), plan.region_bytes));
    planned_ = true;
  }
  void* allocate(std::uint32_t tensor, std::uint64_t bytes) override {
    const auto slot = planned_ ? tensor : LiveTensor::kUnplanned;
    return reinterpret_cast<void*>(space_.allocate(bytes, slot, false)->address);
  }
  void release(void* address) override {
    space_.release(reinterpret_cast<std::uintptr_t>(address));
  }

 private:
  SsdEngine engine_;
  Space space_;
  bool planned_ = false;
};

struct Candidate {
  const char* name;
  const char* environment;  // set for its process
  const char* symbol;       // must exist there: the preloaded library is the one in use
};

constexpr const char* kKept =
    "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1000000000000 MALLOC_TOP_PAD_=268435456";

const Candidate candidates[] = {
    {"glibc", "", ""},
    {"glibc, memory kept", kKept, ""},
    {"glibc, kept, huge pages",
     "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:"
     "glibc.malloc.trim_threshold=1000000000000:glibc.malloc.top_pad=268435456",
     ""},
    {"jemalloc", "LD_PRELOAD=libjemalloc.so.2", "mallctl"},
    {"jemalloc, kept, huge pages",
     "LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always",
     "mallctl"},
    {"mimalloc", "LD_PRELOAD=libmimalloc.so.2.0", "mi_malloc"},
    {"mimalloc, kept",
     "LD_PRELOAD=libmimalloc.so.2.0 MIMALLOC_ALLOW_DECOMMIT=0 MIMALLOC_PAGE_RESET=0", "mi_malloc"},
    {"sentinel, unplanned", "", ""},
    {"sentinel, planned", "", ""},
};

std::uint64_t status_kb(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1));
  return 0;
}

void touch(void* address, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kPage) static_cast<volatile char*>(address)[at] = 1;
}

void replay_step(const AllocationLog& log, Allocator& allocator, std::vector<void*>& at,
                 bool touched) {
  for (const auto [tensor, allocates] : log.step) {
    if (!allocates) {
      allocator.release(at[tensor]);
      continue;
    }
    at[tensor] = allocator.allocate(tensor, log.bytes(tensor));
    if (touched) touch(at[tensor], log.bytes(tensor));
  }
}

// In the child: prints "ns untouched, ns touched, peak KB", or nothing where the library is absent.
int measure(const Candidate& candidate, const AllocationLog& log) {
  if (*candidate.symbol != '\0' && dlsym(RTLD_DEFAULT, candidate.symbol) == nullptr) return 0;
  std::vector<void*> at(log.tensors());
  const auto before = status_kb("VmRSS");
  std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM starts again
  const std::string name = candidate.name;
  std::unique_ptr<Allocator> allocator;
  if (name.starts_with("sentinel"))
    allocator = std::make_unique<Arena>();
  else
    allocator = std::make_unique<Malloc>();
  if (name == "sentinel, planned") static_cast<Arena&>(*allocator).follow(log.profile);
  for (const auto t : log.persistent)
    touch(at[t] = allocator->allocate(t, log.bytes(t)), log.bytes(t));
  const auto untouched = median_ns(5, 50, [&] { replay_step(log, *allocator, at, false); });
  const auto touched = median_ns(3, 20, [&] { replay_step(log, *allocator, at, true); });
  const auto pairs = static_cast<double>(log.pairs());
  fmt::print("{} {} {}\n", untouched / pairs, touched / pairs, status_kb("VmHWM") - before);
  std::fflush(stdout);
  _exit(0);
}

struct Result {
  std::vector<double> untouched, touched, peak_kb;
};

void measure_in_child(const Candidate& candidate, const std::string& arguments, Result& result) {
  const auto command =
      fmt::format("env {} '{}' --child '{}' {}", candidate.environment,
                  "/proc/" + std::to_string(getpid()) + "/exe", candidate.name, arguments);
  FILE* output = popen(command.c_str(), "r");
  double untouched = 0, touched = 0, peak_kb = 0;
  const bool read =
      output != nullptr && fscanf(output, "%lf %lf %lf", &untouched, &touched, &peak_kb) == 3;
  if (output != nullptr) pclose(output);
  if (!read) return;
  result.untouched.push_back(untouched);
  result.touched.push_back(touched);
  result.peak_kb.push_back(peak_kb);
}

void print(const AllocationLog& log, const std::vector<Result>& results) {
  fmt::print("{} allocations and frees a step, {} live at most, {} persistent tensors\n\n",
             log.pairs(), print_bytes(log.peak_bytes), log.persistent.size());
  fmt::print("{:28} {:>10} {:>7} {:>13} {:>7} {:>10} {:>7}\n", "", "ns a pair", "ratio",
             "ns, touched", "ratio", "peak", "/live");
  const auto planned = results.back();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& [untouched, touched, peak_kb] = results[i];
    if (untouched.empty()) {
      fmt::print("{:28} absent, or refused here\n", candidates[i].name);
      continue;
    }
    const auto peak = 1024 * median(peak_kb);
    fmt::print("{:28} {:10.0f} {:7.2f} {:13.0f} {:7.2f} {:>10} {:7.2f}\n", candidates[i].name,
               median(untouched), median(untouched) / median(planned.untouched), median(touched),
               median(touched) / median(planned.touched),
               print_bytes(static_cast<std::uint64_t>(peak)),
               peak / static_cast<double>(log.peak_bytes));
  }
  fmt::print("\nratios: to the last row; medians of {} processes each\n", planned.untouched.size());
}

int run(int argc, char** argv) {
  CLI::App app("Replays a step's allocations against several allocators");
  std::string path = SENTINEL_LOG, child;
  std::uint64_t factor = 1;
  int rounds = 5;
  app.add_option("--log", path, "tensor trace to replay");
  app.add_option("--factor", factor, "makes what lives within the step this much larger");
  app.add_option("--rounds", rounds, "processes an allocator");
  app.add_option("--child", child)->group("");
  CLI11_PARSE(app, argc, argv);
  const auto log = read_log(path, factor);
  for (const auto& candidate : candidates)
    if (child == candidate.name) return measure(candidate, log);
  std::vector<Result> results(std::size(candidates));
  const auto arguments = fmt::format("--log '{}' --factor {}", path, factor);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < results.size(); ++i)
      measure_in_child(candidates[i], arguments, results[i]);
  print(log, results);
  return 0;
}

}  // namespace
}  // namespace sentinel::bench

int main(int argc, char** argv) {
  try {
    return sentinel::bench::run(argc, argv);
  } catch (const sentinel::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
