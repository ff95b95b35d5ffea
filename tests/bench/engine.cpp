// What the engine's mechanisms cost on this machine, for each way of I/O and of handling frames,
// and how near its exchange with the slow tier comes to what the same executors reach on bare
// buffers.
//
//   engine_bench [--directory DIR] [--blocks N] [--rounds N]
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <string>
#include <thread>

#include "alloc/ranges.h"
#include "base/units.h"
#include "engine/ssd/ssd_engine.h"
#include "measure/exchange.h"
#include "measure/measure.h"
#include "sentinel/error.h"
#include "timing.h"

namespace sentinel::bench {
namespace {

struct Mode {
  const char* name;
  IoBackend io;
  bool use_move;
};

constexpr Mode modes[] = {{"uring, move", IoBackend::uring, true},
                          {"uring, copy", IoBackend::uring, false},
                          {"threads, move", IoBackend::threads, true},
                          {"threads, copy", IoBackend::threads, false}};

struct Setting {
  std::string directory = "/var/tmp";
  std::uint64_t blocks = 96;  // exchanged in one measurement; a third of them is resident
  std::uint64_t resident() const { return blocks / 3; }
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](timeval t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Blocks {
 public:
  Blocks(const Setting& setting, const Mode& mode)
      : engine({.slow_directory = setting.directory,
                .io = mode.io,
                .use_move = mode.use_move,
                .arena_bytes = 2_GiB}) {}

  std::uintptr_t at(std::uint64_t block) const { return engine.arena() + block * kGranule; }
  void touch(std::uint64_t block) { *reinterpret_cast<volatile std::uint64_t*>(at(block)) = block; }
  void on_allocate(std::uint64_t block) { engine.on_allocate(at(block), kGranule); }
  void on_free(std::uint64_t block) { engine.on_free(at(block), kGranule, true); }
  void demote(std::uint64_t block) { engine.demote(at(block), kGranule); }
  void promote(std::uint64_t block) { engine.promote(at(block), kGranule); }
  void fill(std::uint64_t block) {
    auto* words = reinterpret_cast<std::uint64_t*>(at(block));
    for (std::uint64_t i = 0; i < kGranule / 8; ++i) words[i] = (block + i) * 0x9E3779B97F4A7C15ull;
  }
  void settle() {  // until what is on its way out has left
    for (auto before = ~0ull; before != engine.counters().demoted_bytes; usleep(20000))
      before = engine.counters().demoted_bytes;
  }

  SsdEngine engine;
};

// Median microseconds of a call for each of the blocks [first, last).
template <class F>
double median_us(std::uint64_t first, std::uint64_t last, F&& call) {
  return median_ns(0, last - first, [&] { call(first++); }) / 1e3;
}

// A block that is touched for the first time, when frames are to be had.
double give_us(const Setting& setting, const Mode& mode) {
  Blocks blocks(setting, mode);
  for (std::uint64_t b = 0; b < setting.blocks; ++b) blocks.on_allocate(b);
  return median_us(0, setting.blocks, [&](auto b) { blocks.touch(b); });
}

// The same when every frame has to come from a block where nothing lives any more.
double give_again_us(const Setting& setting, const Mode& mode) {
  Blocks blocks(setting, mode);
  blocks.engine.set_budget(setting.resident() * kGranule);
  const auto use = [&](std::uint64_t b) {
    blocks.on_allocate(b), blocks.touch(b), blocks.on_free(b);
  };
  for (std::uint64_t b = 0; b < setting.resident(); ++b) use(b);
  return median_us(setting.resident(), setting.blocks, use);
}

// Microseconds of a touch that has to wait for its bytes, with frames free.
double fetch_us(const Setting& setting, const Mode& mode) {
  Blocks blocks(setting, mode);
  blocks.engine.set_budget(setting.resident() * kGranule);
  const auto moved = setting.resident() / 2;
  for (std::uint64_t b = 0; b < moved; ++b)
    blocks.on_allocate(b), blocks.fill(b), blocks.engine.tick();
  for (std::uint64_t b = 0; b < moved; ++b) blocks.demote(b);
  blocks.settle();
  return median_us(0, moved,
                   [&](auto n) { blocks.touch(moved - 1 - n); });  // nothing is read ahead
}

struct Moved {
  double bytes_per_s, cpu_s_per_gb;
};

Moved exchange(const Setting& setting, const Mode& mode) {
  Exchange exchange({.slow_directory = setting.directory,
                     .io = mode.io,
                     .use_move = mode.use_move,
                     .arena_bytes = 2 * setting.blocks * kGranule},
                    setting.blocks);
  const auto cpu = cpu_seconds();
  const auto run = exchange.run();
  const auto bytes = static_cast<double>(run.bytes);
  return {bytes / run.seconds, (cpu_seconds() - cpu) / (bytes / 1e9)};
}

struct Switch {
  double start_ms_per_gib, stop_ms_per_gib;
};

Switch switch_cost(const Setting& setting, const Mode& mode) {
  Blocks blocks(setting, mode);
  for (std::uint64_t b = 0; b < setting.blocks; ++b) blocks.on_allocate(b), blocks.fill(b);
  const auto gib = static_cast<double>(setting.blocks * kGranule) / static_cast<double>(1_GiB);
  auto begin = Clock::now();
  if (const int code = blocks.engine.start_counting(); code != 0) return {0, 0};
  const auto start = ns_since(begin) / 1e6 / gib;
  begin = Clock::now();
  blocks.engine.stop_counting();
  return {start, ns_since(begin) / 1e6 / gib};
}

// ---------------------------------------------------------------- what they are compared with

// First touch of 2 MiB of plain memory, as huge pages or not.
double plain_touch_us(const Setting& setting, bool huge) {
  const auto bytes = setting.blocks * kGranule;
  const auto begin = reserve_anonymous(bytes, kGranule);
  if (!huge) madvise(reinterpret_cast<void*>(begin), bytes, MADV_NOHUGEPAGE);
  const auto us = median_us(0, setting.blocks, [&](auto b) {
    for (std::uint64_t at = 0; at < kGranule; at += 4096)
      *reinterpret_cast<volatile char*>(begin + b * kGranule + at) = 1;
  });
  munmap(reinterpret_cast<void*>(begin), bytes);
  return us;
}

TierSpeed raw_speed(const Setting& setting, IoBackend io) {
  return measure_slow_tier(setting.directory, 3 * setting.blocks / 2 * kGranule,
                           {.backend = io, .frame_bytes = kGranule}, false);
}

// ---------------------------------------------------------------- the table

struct Samples {
  std::vector<double> give, again, fetch, moved, raw, cpu, raw_latency, start, stop;
};

void measure(const Setting& setting, const Mode& mode, Samples& samples) {
  const auto raw = raw_speed(setting, mode.io);
  samples.raw.push_back(raw.exchange_read_bw + raw.exchange_write_bw);
  samples.raw_latency.push_back(raw.latency_us);
  const auto moved = exchange(setting, mode);
  samples.moved.push_back(moved.bytes_per_s);
  samples.cpu.push_back(moved.cpu_s_per_gb);
  samples.give.push_back(give_us(setting, mode));
  samples.again.push_back(give_again_us(setting, mode));
  samples.fetch.push_back(fetch_us(setting, mode));
  const auto switched = switch_cost(setting, mode);
  samples.start.push_back(switched.start_ms_per_gib);
  samples.stop.push_back(switched.stop_ms_per_gib);
}

void print(const Mode& mode, const Samples& s) {
  fmt::print(
      "{:14} {:6.2f} {:6.2f} {:5.0f}% {:7.3f} {:8.0f} {:8.0f} {:8.0f} {:8.0f} {:9.0f} {:9.0f}\n",
      mode.name, median(s.moved) / 1e9, median(s.raw) / 1e9, 100 * median(s.moved) / median(s.raw),
      median(s.cpu), median(s.give), median(s.again), median(s.fetch), median(s.raw_latency),
      median(s.start), median(s.stop));
}

int run(int argc, char** argv) {
  CLI::App app("What the engine's mechanisms cost on this machine");
  Setting setting;
  int rounds = 3;
  app.add_option("--directory", setting.directory, "where the slow tier lies");
  app.add_option("--blocks", setting.blocks, "blocks of 2 MiB, up to 1000");
  app.add_option("--rounds", rounds, "measurements of each row");
  CLI11_PARSE(app, argc, argv);
  std::vector<Samples> samples(std::size(modes));
  std::vector<double> huge, small;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < std::size(modes); ++i) measure(setting, modes[i], samples[i]);
    huge.push_back(plain_touch_us(setting, true));
    small.push_back(plain_touch_us(setting, false));
  }
  fmt::print("{:14} {:>6} {:>6} {:>6} {:>7} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}\n", "", "GB/s",
             "raw", "of raw", "cpu s", "give", "give", "fetch", "raw", "count on", "count off");
  fmt::print("{:14} {:>6} {:>6} {:>6} {:>7} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}\n", "", "in+out",
             "in+out", "", "a GB", "new, us", "dead, us", "us", "us", "ms/GiB", "ms/GiB");
  for (std::size_t i = 0; i < std::size(modes); ++i) print(modes[i], samples[i]);
  fmt::print(
      "\nfirst touch of 2 MiB of plain memory: {:.0f} us on huge pages, {:.0f} us on 4 KiB pages\n",
      median(huge), median(small));
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
