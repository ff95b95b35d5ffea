// What an allocation, its free, and an op cost in the steady state under an active plan, and which
// part of the code takes how much of it. The tensors' memory is never touched.
//
// With --count, the instructions of whole steps under a plan are counted instead, an op with its
// allocations and frees.
//
//   steady_bench [--log FILE] [--factor N] [--rounds N] [--only NAME] [--count]
#include <fmt/format.h>
#include <x86intrin.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>

#include "allocation_log.h"
#include "base/units.h"
#include "engine/ssd/ssd_engine.h"
#include "instructions.h"
#include "runtime/session.h"
#include "sentinel/adaptor.h"
#include "sentinel/error.h"
#include "timing.h"

namespace sentinel::bench {
namespace {

constexpr std::uint64_t kArena = 64_GiB;
constexpr std::size_t kSteps = 60;

// ---------------------------------------------------------------- the parts, one at a time

// Median nanoseconds of a pair, when `allocate(tensor)` and `release(tensor)` replay the step.
template <class Allocate, class Release>
double pair_ns(const AllocationLog& log, Allocate&& allocate, Release&& release) {
  return median_ns(5, kSteps,
                   [&] {
                     for (const auto [tensor, allocates] : log.step)
                       allocates ? allocate(tensor) : release(tensor);
                   }) /
         static_cast<double>(log.pairs());
}

EngineOptions engine_options() { return {.slow_directory = "/var/tmp", .arena_bytes = kArena}; }

// Where tensors of the log lie: best fit gives each the address it would have had.
std::vector<std::uintptr_t> addresses(const AllocationLog& log, std::uintptr_t begin) {
  Heap heap(begin, kArena);
  std::vector<std::uintptr_t> at(log.tensors());
  const auto take = [&](std::uint32_t t) {
    at[t] = heap.allocate(log.bytes(t), natural_alignment(log.bytes(t), kGranule));
  };
  for (const auto t : log.persistent) take(t);
  for (const auto [t, allocates] : log.step) allocates ? take(t) : heap.free(at[t], log.bytes(t));
  return at;
}

double replay_alone(const AllocationLog& log) {
  volatile std::uint64_t sink = 0;
  return pair_ns(
      log, [&](auto t) { sink = sink + t; }, [&](auto t) { sink = sink - t; });
}

double two_locks(const AllocationLog& log) {
  std::mutex lock;
  const auto once = [&](auto) { const std::lock_guard guard(lock); };
  return pair_ns(log, once, once);
}

double system_malloc(const AllocationLog& log) {
  std::vector<void*> at(log.tensors());
  return pair_ns(
      log,
      [&](auto t) {
        if (posix_memalign(&at[t], 64, log.bytes(t)) != 0) std::abort();
      },
      [&](auto t) { free(at[t]); });
}

double table(const AllocationLog& log) {
  const auto at = addresses(log, kGranule);
  AddressTable table;
  for (const auto t : log.persistent) table.insert({.address = at[t]});
  return pair_ns(
      log, [&](auto t) { table.insert({.address = at[t]}); },
      [&](auto t) { table.find(at[t]), table.erase(at[t]); });
}

double heap(const AllocationLog& log) {
  Heap heap(kGranule, kArena);
  std::vector<std::uintptr_t> at(log.tensors());
  const auto take = [&](auto t) {
    at[t] = heap.allocate(log.bytes(t), natural_alignment(log.bytes(t), kGranule));
  };
  for (const auto t : log.persistent) take(t);
  return pair_ns(log, take, [&](auto t) { heap.free(at[t], log.bytes(t)); });
}

double engine(const AllocationLog& log) {
  SsdEngine engine(engine_options());
  const auto at = addresses(log, engine.arena());
  return pair_ns(
      log, [&](auto t) { engine.on_allocate(at[t], log.bytes(t)); },
      [&](auto t) { engine.on_free(at[t], log.bytes(t), true); });
}

double matcher(const AllocationLog& log) {
  StepMatcher matcher(log.profile);
  volatile std::uint32_t sink = 0;
  std::vector<std::uint64_t> names;
  for (const auto& op : log.profile.ops) names.push_back(name_hash(op.name));
  const auto walk = [&](bool allocations) {
    return median_ns(5, kSteps, [&] {
      matcher.begin_step();
      for (std::size_t op = 0; op < names.size(); ++op) {
        auto place = op > 0 ? matcher.op(names[op]) : matcher.prelude();
        sink = place.position;
        if (!allocations) continue;
        for (auto e = log.op_begin[op]; e < log.op_begin[op + 1]; ++e)
          if (log.step[e].allocates)
            sink = matcher.allocation(place, log.bytes(log.step[e].tensor));
      }
    });
  };
  return (walk(true) - walk(false)) / static_cast<double>(log.pairs());
}

double unplanned(const AllocationLog& log) {
  SsdEngine engine(engine_options());
  Space space(engine);
  std::vector<std::uintptr_t> at(log.tensors());
  const auto take = [&](auto t) {
    at[t] = space.allocate(log.bytes(t), LiveTensor::kUnplanned, false)->address;
  };
  for (const auto t : log.persistent) take(t);
  return pair_ns(log, take, [&](auto t) { space.release(at[t]); });
}

// One slot a tensor, at the places best fit has given them.
double planned(const AllocationLog& log) {
  SsdEngine engine(engine_options());
  Space space(engine);
  const auto at = addresses(log, 0x40000000);
  std::vector<PlannedSlot> slots(log.tensors());
  std::uint64_t end = 0;
  for (const auto [t, allocates] : log.step) {
    slots[t] = {
        .offset = at[t] - 0x40000000, .bytes = log.bytes(t), .placed = true, .shared = true};
    end = std::max(end, slots[t].offset + slots[t].bytes);
  }
  const auto plan = space.add_plan(slots, round_up(end, kGranule));
  space.activate(plan);
  return pair_ns(
      log, [&](auto t) { space.allocate(log.bytes(t), t, false); },
      [&](auto t) { space.release(space.address_of(plan, t)); });
}

// ---------------------------------------------------------------- whole steps

// The calls that a framework's adaptor makes, to a session in this program or through the C ABI.
struct Calls {
  std::function<void*(std::size_t)> allocate;
  std::function<void(void*)> release;
  std::function<bool()> wants_tensors;
  std::function<void(const char*)> op_start;
  std::function<void(const void*, std::size_t, int)> op_tensor;
  std::function<void()> op_run, op_end, step_end;
};

Calls calls_to(Session& session) {
  return {.allocate = [&](std::size_t bytes) { return session.allocate(bytes); },
          .release = [&](void* address) { session.release(address); },
          .wants_tensors = [&] { return session.wants_tensors(); },
          .op_start = [&](const char* name) { session.op_start(name, Phase::forward, nullptr); },
          .op_tensor = [&](const void* s, std::size_t n,
                           int access) { session.op_tensor(s, n, access); },
          .op_run = [&] { session.op_run(); },
          .op_end = [&] { session.op_end(); },
          .step_end = [&] { session.step_end(); }};
}

Calls calls_to_c_abi() {
  return {.allocate = sentinel_malloc,
          .release = sentinel_free,
          .wants_tensors = [] { return sentinel_wants_tensors() != 0; },
          .op_start = [](const char* name) { sentinel_op_start(name, SENTINEL_FORWARD, nullptr); },
          .op_tensor = sentinel_op_tensor,
          .op_run = sentinel_op_run,
          .op_end = sentinel_op_end,
          .step_end = [] { sentinel_step(); }};
}

struct StepTimes {  // cycles, summed over one step
  double allocations = 0, frees = 0, op_starts = 0, op_ends = 0;
};

class Training {
 public:
  Training(const AllocationLog& log, Calls calls)
      : log_(log), calls_(std::move(calls)), at_(log.tensors()) {
    for (const auto t : log.persistent) at_[t] = calls_.allocate(log.bytes(t));
  }

  StepTimes step() {
    StepTimes times;
    for (std::size_t op = 0; op < log_.profile.ops.size(); ++op) run_op(op, times);
    calls_.step_end();
    return times;
  }

 private:
  void run_op(std::size_t index, StepTimes& times) {
    const auto& op = log_.profile.ops[index];
    const bool prelude = op.name == StepRecorder::kPrelude;
    const auto t0 = __rdtsc();
    if (!prelude) {
      calls_.op_start(op.name.c_str());
      if (calls_.wants_tensors()) name_inputs(op);
      calls_.op_run();
    }
    const auto t1 = __rdtsc();
    const auto end = log_.op_begin[index + 1];
    auto event = log_.op_begin[index];
    for (; event < end && log_.step[event].allocates; ++event)
      at_[log_.step[event].tensor] = calls_.allocate(log_.bytes(log_.step[event].tensor));
    const auto t2 = __rdtsc();
    if (!prelude) calls_.op_end();
    const auto t3 = __rdtsc();
    for (; event < end; ++event) calls_.release(at_[log_.step[event].tensor]);
    const auto t4 = __rdtsc();
    times.op_starts += static_cast<double>(t1 - t0);
    times.allocations += static_cast<double>(t2 - t1);
    times.op_ends += static_cast<double>(t3 - t2);
    times.frees += static_cast<double>(t4 - t3);
  }

  void name_inputs(const Op& op) {
    for (const auto id : op.in)
      if (at_[id.index()] != nullptr)
        calls_.op_tensor(at_[id.index()], log_.bytes(id.value), SENTINEL_READ);
  }

  const AllocationLog& log_;
  Calls calls_;
  std::vector<void*> at_;
};

double ns_per_cycle() {
  const auto begin = Clock::now();
  const auto cycles = __rdtsc();
  while (ns_since(begin) < 20e6) {
  }
  return ns_since(begin) / static_cast<double>(__rdtsc() - cycles);
}

struct Steady {
  double pair_ns, op_ns;
};

// Warm-up, profile and plan take the first few steps; those after them are measured.
Steady measure_training(const AllocationLog& log, Training& training) {
  for (int i = 0; i < 8; ++i) training.step();
  std::vector<double> pairs, ops;
  for (std::size_t i = 0; i < kSteps; ++i) {
    const auto times = training.step();
    pairs.push_back(times.allocations + times.frees);
    ops.push_back(times.op_starts + times.op_ends);
  }
  const auto scale = ns_per_cycle();
  const auto empty = median_ns(5, kSteps,
                               [] {
                                 for (int i = 0; i < 1000; ++i) __rdtsc();
                               }) /
                     1000;
  const auto n = static_cast<double>(log.profile.ops.size());
  return {(median(pairs) * scale - 2 * empty * n) / static_cast<double>(log.pairs()),
          median(ops) * scale / n - 2 * empty};
}

// A machine description spares the measurement of this one, which is no part of the benchmark.
SessionOptions session_options(double percent) {
  SessionOptions options = options_from_environment();
  options.mode = Mode::run;
  options.machine = "a100-g10";
  options.counting.source = "ops";
  options.quiet = true;
  options.tiers.arena_bytes = kArena;
  options.fast.percent = percent;
  return options;
}

// Never called: the policy plans no replays.
constexpr sentinel_replayer kReplayer{
    .replay = [](void* const*, std::size_t, sentinel_give, void*) { return -1; },
    .drop = [](void*) {}};

// Not destroyed: a session lives as long as its process.
Session& session_of(double percent, const sentinel_replayer* replayer) {
  auto options = session_options(percent);
  options.moves.recompute = replayer != nullptr;
  return *new Session(std::move(options), "bench", OpOrder::sequence, replayer);
}

Steady in_session(const AllocationLog& log, double percent,
                  const sentinel_replayer* replayer = nullptr) {
  Training training(log, calls_to(session_of(percent, replayer)));
  return measure_training(log, training);
}

// Steps until nothing is learned any more: where replays are possible, ops are watched for longer.
constexpr int kSettled = 24;

// Instructions of a step under the plan, by op. All memory is allowed: waits for moves would be
// counted, too. On a virtual machine some 20,000 are counted a second.
void count_instructions(const AllocationLog& log) {
  const auto ops = static_cast<double>(log.profile.ops.size());
  for (const auto* replayer : {static_cast<const sentinel_replayer*>(nullptr), &kReplayer}) {
    Training training(log, calls_to(session_of(100, replayer)));
    for (int i = 0; i < kSettled; ++i) training.step();
    InstructionCounter counter;
    fmt::print("replays {}:", replayer != nullptr ? "possible and not in the plan" : "off");
    fmt::print(" {:.1f}", static_cast<double>(counter.count([&] { training.step(); })) / ops);
    fmt::print(" instructions an op, with its allocations and frees\n");
    std::fflush(stdout);  // the next takes minutes
  }
}

Steady through_c_abi(const AllocationLog& log) {
  setenv("SENTINEL_MODE", "run", 1);
  setenv("SENTINEL_MACHINE", "a100-g10", 1);
  setenv("SENTINEL_COUNT", "ops", 1);
  setenv("SENTINEL_QUIET", "1", 1);
  setenv("SENTINEL_ARENA", "64G", 1);
  if (const int code = sentinel_attach("bench", SENTINEL_IN_SEQUENCE);
      code != 0 && code != -EALREADY)
    throw Error(sentinel_last_error(), -code);
  static Training training(log, calls_to_c_abi());  // a process has one session: later rounds go on
  return measure_training(log, training);
}

// ---------------------------------------------------------------- the table

struct Row {
  const char* name;
  const char* meaning;
  std::function<Steady(const AllocationLog&)> measure;
};

Row part(const char* name, const char* meaning, double (*measure)(const AllocationLog&)) {
  return {name, meaning, [measure](const AllocationLog& log) { return Steady{measure(log), 0}; }};
}

const Row rows[] = {
    part("loop", "the replay itself", replay_alone),
    part("mutex", "a mutex, taken and released twice", two_locks),
    part("matcher", "finding the tensor's place in the plan", matcher),
    part("table", "live tensors by address: insert, find, erase", table),
    part("engine", "blocks of the arena: on_allocate, on_free", engine),
    part("heap", "best fit, without a plan", heap),
    part("space-unplanned", "heap, engine and table", unplanned),
    part("space-planned", "slot, engine and table", planned),
    part("malloc", "the C library's", system_malloc),
    {"session", "all of it, unlimited memory",
     [](const AllocationLog& log) { return in_session(log, 0); }},
    {"session-half", "all of it, within half of the memory",
     [](const AllocationLog& log) { return in_session(log, 50); }},
    {"session-replays", "the same, where replays are possible and not in the plan",
     [](const AllocationLog& log) { return in_session(log, 50, &kReplayer); }},
    {"c-abi", "all of it through the library", through_c_abi},
};

int run(int argc, char** argv) {
  CLI::App app("What an allocation, its free and an op cost in the steady state");
  std::string path = SENTINEL_LOG, only;
  int rounds = 5;
  bool counts = false;
  std::uint64_t factor = 4;
  app.add_option("--log", path, "tensor trace to replay");
  app.add_option("--factor", factor, "makes what lives within the step this much larger");
  app.add_option("--rounds", rounds, "measurements of each row");
  app.add_option("--only", only, "a row by its name");
  app.add_flag("--count", counts, "count instructions of whole steps instead");
  CLI11_PARSE(app, argc, argv);
  const auto log = read_log(path, factor);
  if (counts) {
    count_instructions(log);
    std::fflush(stdout);
    std::_Exit(0);
  }
  std::vector<std::vector<double>> pairs(std::size(rows)), ops(std::size(rows));
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < std::size(rows); ++i) {
      if (!only.empty() && only != rows[i].name) continue;
      const auto steady = rows[i].measure(log);
      pairs[i].push_back(steady.pair_ns);
      ops[i].push_back(steady.op_ns);
    }
  fmt::print("{} allocations and frees, {} ops a step\n\n{:16} {:>10} {:>10}\n", log.pairs(),
             log.profile.ops.size(), "", "ns a pair", "ns an op");
  for (std::size_t i = 0; i < std::size(rows); ++i)
    if (!pairs[i].empty())
      fmt::print("{:16} {:10.1f} {:>10} {}\n", rows[i].name, median(pairs[i]),
                 median(ops[i]) == 0 ? "" : fmt::format("{:.1f}", median(ops[i])), rows[i].meaning);
  std::fflush(stdout);
  std::_Exit(0);
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
