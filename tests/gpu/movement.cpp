// Movement between a GPU and the host against the link: plain copies of pinned memory, and the
// engine's, which map and unmap what they move, or prefetch managed memory: ranges of many
// granules, as tensors have, and granules one by one; each way alone and both at once, interleaved,
// medians of several rounds. And how long the calls take that map and unmap a granule, alone and
// among neighbours. Needs a device; takes some seconds.
//
//   gpu_movement [FILE [BLOCKS]]     FILE gets the figures as JSON; of 2 MiB each way, 512 if not
//                                    given, rounded up to whole ranges
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "engine/gpu/gpu_engine.h"
#include "engine/gpu/managed_driver.h"

namespace sentinel::gpu {
namespace {

constexpr int kRounds = 5;
constexpr std::uint64_t kGranule = 2_MiB;

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// GB/s; of `both` in and out together.
struct Rates {
  double in, out, both;
};

class Plain {
 public:
  Plain(Driver& driver, std::uint64_t blocks) : driver_(driver), blocks_(blocks) {
    const auto bytes = 2 * blocks * kGranule;
    device_ = driver.reserve(bytes);
    host_ = static_cast<char*>(driver.pin(bytes));
    const auto chunk = driver.create(bytes);
    if (!chunk) throw Error(fmt::format("the device has not {} bytes free", bytes));
    driver.map(device_, bytes, *chunk);
    for (Stream& stream : streams_) stream = driver.make_stream();
    for (Event& event : events_) event = driver.make_event();
    run(true, true);
  }
  Rates measure() { return {run(true, false), run(false, true), run(true, true)}; }

 private:
  double run(bool in, bool out) {
    const auto begin = Clock::now();
    const auto other = blocks_ * kGranule;
    for (std::uint64_t n = 0; n < blocks_; ++n) {
      char* device = reinterpret_cast<char*>(device_) + n * kGranule;
      char* host = host_ + n * kGranule;
      if (in) driver_.copy(device, host, kGranule, streams_[0]);
      if (out) driver_.copy(host + other, device + other, kGranule, streams_[1]);
    }
    for (int i = 0; i < 2; ++i) driver_.record(events_[i], streams_[i]);
    for (Event event : events_) driver_.synchronize(event);
    return static_cast<double>((in + out) * blocks_ * kGranule) / 1e9 / seconds_since(begin);
  }

  Driver& driver_;
  std::uint64_t blocks_;
  std::uintptr_t device_;
  char* host_;
  Stream streams_[2];
  Event events_[2];
};

// The arena has three times as many granules as the budget chunks. A third of them is resident.
class Engine {
 public:
  Engine(Driver& driver, std::uint64_t blocks)
      : driver_(driver),
        blocks_(blocks),
        engine_(driver, {.arena_bytes = 3 * blocks * kGranule, .granule_bytes = kGranule}),
        stream_(driver.make_stream()),
        event_(driver.make_event()) {
    engine_.compute_on(stream_);
    engine_.set_budget(blocks * kGranule);
    for (std::uint64_t n = 0; n < 3 * blocks; ++n) {
      engine_.tick();
      engine_.on_allocate(at(n), kGranule);
      engine_.demote(at(n), kGranule);
    }
  }
  // The first third comes, until what computes may use it, and goes, until its chunks are free.
  // Then both at once, as in the steady state of a plan. So many granules are asked for, and let
  // go, by one call. Bytes are those that were really copied.
  Rates measure(std::uint64_t together) {
    const Ranges ranges{blocks_ / together, together * kGranule};
    exchange(ranges, ranges.count);  // the first third is away, whatever was before
    engine_.settle();
    Rates rates{};
    rates.in = timed([&] {
      for (std::uint64_t n = 0; n < ranges.count; ++n) promote(ranges, n);
      for (std::uint64_t n = 0; n < ranges.count; ++n) await(ranges, n);
      finish();
    });
    rates.out = timed([&] {
      for (std::uint64_t n = 0; n < ranges.count; ++n) demote(ranges, n);
      engine_.settle();
    });
    rates.both = timed([&] {
      exchange(ranges, 2 * ranges.count);
      engine_.settle();
    });
    return rates;
  }

 private:
  // Of a third.
  struct Ranges {
    std::uint64_t count, bytes;
  };

  std::uintptr_t at(std::uint64_t n) const { return engine_.arena() + n * kGranule; }
  std::uintptr_t at(const Ranges& ranges, std::uint64_t n) const {
    return engine_.arena() + n * ranges.bytes;
  }
  void promote(const Ranges& ranges, std::uint64_t n) {
    engine_.promote(at(ranges, n), ranges.bytes);
  }
  void demote(const Ranges& ranges, std::uint64_t n) {
    engine_.demote(at(ranges, n), ranges.bytes);
  }
  void await(const Ranges& ranges, std::uint64_t n) {
    engine_.tick();
    engine_.await(at(ranges, n), ranges.bytes);
  }
  void finish() {
    driver_.record(event_, stream_);
    driver_.synchronize(event_);
  }
  // Of the other two thirds.
  void exchange(const Ranges& ranges, std::uint64_t count) {
    const auto ahead = std::max<std::uint64_t>(1, ranges.count / 8);
    const auto place = [&](std::uint64_t n) { return ranges.count + n % (2 * ranges.count); };
    for (std::uint64_t n = 0; n < std::min(ahead, count); ++n) promote(ranges, place(n));
    for (std::uint64_t n = 0; n < count; ++n) {
      if (n + ahead < count) promote(ranges, place(n + ahead));
      await(ranges, place(n));
      demote(ranges, place(n));
    }
    finish();
  }
  template <class F>
  double timed(F&& moves) {
    const auto moved = [this] {
      const auto counters = engine_.counters();
      return counters.promoted_bytes + counters.demoted_bytes;
    };
    const auto before = moved();
    const auto begin = Clock::now();
    moves();
    const auto seconds = seconds_since(begin);
    return static_cast<double>(moved() - before) / 1e9 / seconds;
  }

  Driver& driver_;
  std::uint64_t blocks_;
  GpuEngine engine_;
  Stream stream_;
  Event event_;
};

// Microseconds of the calls for one granule.
struct Calls {
  double map, unmap;
};

// Of so many neighbours that are mapped by one call, and unmapped by one, and copied to in between,
// as a device may put off what nobody uses.
Calls calls(Driver& driver, std::size_t together) {
  const auto granule = round_up(kGranule, driver.granularity());
  const auto most = neighbours(granule);
  const auto range = driver.reserve(most * granule);
  const auto stream = driver.make_stream();
  const auto event = driver.make_event();
  void* host = driver.pin(granule);
  std::vector<Chunk> chunks;
  while (chunks.size() < together) {
    const auto chunk = driver.create(granule);
    if (!chunk) throw Error("the device has too little memory free");
    chunks.push_back(*chunk);
  }
  std::vector<double> in, out;
  for (std::size_t n = 0; n < 5 * most; n += together) {
    const auto at = range + n % most * granule;
    auto begin = Clock::now();
    driver.map_all(at, granule, chunks);
    in.push_back(1e6 * seconds_since(begin) / static_cast<double>(together));
    for (std::size_t i = 0; i < together; ++i)
      driver.copy(reinterpret_cast<void*>(at + i * granule), host, granule, stream);
    driver.record(event, stream);
    driver.synchronize(event);
    begin = Clock::now();
    driver.unmap(at, together * granule);
    out.push_back(1e6 * seconds_since(begin) / static_cast<double>(together));
  }
  for (const Chunk chunk : chunks) driver.destroy(chunk);
  driver.unpin(host);
  driver.destroy_event(event);
  driver.destroy_stream(stream);
  driver.unreserve(range, most * granule);
  return {median(in), median(out)};
}

struct Row {
  const char *key, *name;
  std::function<Rates()> measure;
  std::vector<Rates> rounds = {};
};

Rates medians(const std::vector<Rates>& rounds) {
  const auto middle = [&](double Rates::*which) {
    std::vector<double> values;
    for (const Rates& round : rounds) values.push_back(round.*which);
    return median(values);
  };
  return {middle(&Rates::in), middle(&Rates::out), middle(&Rates::both)};
}

void print(const char* name, const Rates& rates, const Rates& of) {
  fmt::print("{:<28}", name);
  for (const auto which : {&Rates::in, &Rates::out, &Rates::both})
    fmt::print("  {:6.1f} {:4.0f} %", rates.*which, 100 * rates.*which / of.*which);
  fmt::print("\n");
}

void print(const std::string& name, const Calls& calls) {
  fmt::print("{:<28}  {:13.1f}  {:13.1f}\n", name, calls.map, calls.unmap);
}

std::string json_of(const Rates& rates) {
  return fmt::format(R"({{"in": {}, "out": {}, "both": {}}})", rates.in, rates.out, rates.both);
}
std::string json_of(const Calls& calls) {
  return fmt::format(R"({{"map": {}, "unmap": {}}})", calls.map, calls.unmap);
}

void run(const char* file, std::uint64_t blocks) {
  const char* library = std::getenv("SENTINEL_CUDA");  // as in a session
  const auto open = [&] { return library != nullptr ? open_driver(0, library) : open_driver(0); };
  const auto driver = open();
  const auto together = neighbours(round_up(kGranule, driver->granularity()));
  const auto alone = calls(*driver, 1), beside = calls(*driver, together);
  blocks = round_up(blocks, together);
  Plain plain(*driver, blocks);
  Engine pools(*driver, blocks);
  const auto prefetching = make_managed_driver(open());
  Engine managed(*prefetching, blocks);
  std::vector<Row> rows{
      {"plain", "plain copies, 2 MiB, pinned", [&] { return plain.measure(); }},
      {"pools", "engine, mapped and unmapped", [&] { return pools.measure(together); }},
      {"pools, one by one", "  granules one by one", [&] { return pools.measure(1); }},
      {"managed", "engine, managed, prefetched", [&] { return managed.measure(together); }},
      {"managed, one by one", "  granules one by one", [&] { return managed.measure(1); }},
  };
  for (int round = 0; round < kRounds; ++round)
    for (Row& row : rows) row.rounds.push_back(row.measure());
  fmt::print("GB/s, and of plain copies     {:>13}  {:>13}  {:>13}\n", "in", "out", "both at once");
  const auto link = medians(rows[0].rounds);
  std::string rates;
  for (const Row& row : rows) {
    print(row.name, medians(row.rounds), link);
    rates += fmt::format(R"({}"{}": {})", rates.empty() ? "" : ", ", row.key,
                         json_of(medians(row.rounds)));
  }
  fmt::print("\nmicroseconds for a granule    {:>13}  {:>13}\n", "map", "unmap");
  print("alone", alone);
  print(fmt::format("of {} together", together), beside);
  if (file == nullptr) return;
  std::ofstream(file) << fmt::format(
      R"({{"movement": {{{}}}, "mapping": {{"alone": {}, "of {} together": {}}}}})", rates,
      json_of(alone), together, json_of(beside));
}

}  // namespace
}  // namespace sentinel::gpu

int main(int count, char** words) try {
  constexpr std::uint64_t kGiB = 512;
  sentinel::gpu::run(count > 1 ? words[1] : nullptr, count > 2 ? std::stoull(words[2]) : kGiB);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
