// Movement between a GPU and the host against the link: plain copies of pinned memory, and the
// engine's, which map and unmap what they move, or prefetch managed memory; each way alone and both
// at once, interleaved, medians of several rounds. Needs a device; takes some seconds.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "execute/gpu/managed_driver.h"
#include "execute/gpu/pool_engine.h"

namespace sentinel::gpu {
namespace {

constexpr int kRounds = 5;
constexpr std::uint64_t kGranule = 2_MiB, kBlocks = 512;  // a GiB

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
  explicit Plain(Driver& driver) : driver_(driver) {
    device_ = driver.reserve(2 * kBlocks * kGranule);
    host_ = static_cast<char*>(driver.pin(2 * kBlocks * kGranule));
    const auto chunk = driver.create(2 * kBlocks * kGranule);
    if (!chunk) throw Error("the device has not two GiB free");
    driver.map(device_, 2 * kBlocks * kGranule, *chunk);
    for (Stream& stream : streams_) stream = driver.make_stream();
    for (Event& event : events_) event = driver.make_event();
    run(true, true);
  }
  Rates measure() { return {run(true, false), run(false, true), run(true, true)}; }

 private:
  double run(bool in, bool out) {
    const auto begin = Clock::now();
    for (std::uint64_t n = 0; n < kBlocks; ++n) {
      char* device = reinterpret_cast<char*>(device_) + n * kGranule;
      char* host = host_ + n * kGranule;
      constexpr auto kOther = kBlocks * kGranule;
      if (in) driver_.copy(device, host, kGranule, streams_[0]);
      if (out) driver_.copy(host + kOther, device + kOther, kGranule, streams_[1]);
    }
    for (int i = 0; i < 2; ++i) driver_.record(events_[i], streams_[i]);
    for (Event event : events_) driver_.synchronize(event);
    return static_cast<double>((in + out) * kBlocks * kGranule) / 1e9 / seconds_since(begin);
  }

  Driver& driver_;
  std::uintptr_t device_;
  char* host_;
  Stream streams_[2];
  Event events_[2];
};

// The arena has three times as many granules as the budget chunks. A third of them is resident.
class Engine {
 public:
  explicit Engine(Driver& driver)
      : driver_(driver),
        engine_(driver, {.arena_bytes = 3 * kBlocks * kGranule, .granule_bytes = kGranule}),
        stream_(driver.make_stream()),
        event_(driver.make_event()) {
    engine_.compute_on(stream_);
    engine_.set_budget(kBlocks * kGranule);
    for (std::uint64_t n = 0; n < 3 * kBlocks; ++n) {
      engine_.tick();
      engine_.occupy(at(n), kGranule);
      engine_.demote(at(n), kGranule);
    }
  }
  // The first third comes, until what computes may use it, and goes, until its chunks are free.
  // Then both at once, as in the steady state of a plan. Bytes are those that were really copied.
  Rates measure() {
    exchange(kBlocks);  // the first third is away, whatever was before
    engine_.settle();
    Rates rates{};
    rates.in = timed([&] {
      for (std::uint64_t n = 0; n < kBlocks; ++n) engine_.promote(at(n), kGranule);
      for (std::uint64_t n = 0; n < kBlocks; ++n) await(n);
      finish();
    });
    rates.out = timed([&] {
      for (std::uint64_t n = 0; n < kBlocks; ++n) engine_.demote(at(n), kGranule);
      engine_.settle();
    });
    rates.both = timed([&] {
      exchange(2 * kBlocks);
      engine_.settle();
    });
    return rates;
  }

 private:
  std::uintptr_t at(std::uint64_t n) const { return engine_.arena() + n * kGranule; }
  void await(std::uint64_t n) {
    engine_.tick();
    engine_.await(at(n), kGranule);
  }
  void finish() {
    driver_.record(event_, stream_);
    driver_.synchronize(event_);
  }
  // Of the other two thirds.
  void exchange(std::uint64_t count) {
    constexpr std::uint64_t kAhead = 64;
    const auto place = [&](std::uint64_t n) { return at(kBlocks + n % (2 * kBlocks)); };
    for (std::uint64_t n = 0; n < kAhead; ++n) engine_.promote(place(n), kGranule);
    for (std::uint64_t n = 0; n < count; ++n) {
      if (n + kAhead < count) engine_.promote(place(n + kAhead), kGranule);
      engine_.tick();
      engine_.await(place(n), kGranule);
      engine_.demote(place(n), kGranule);
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
  PoolEngine engine_;
  Stream stream_;
  Event event_;
};

void print(const char* name, const std::vector<Rates>& rates, const std::vector<Rates>& of) {
  const auto middle = [](const std::vector<Rates>& all, double Rates::*which) {
    std::vector<double> values;
    for (const Rates& r : all) values.push_back(r.*which);
    return median(values);
  };
  fmt::print("{:<28}", name);
  for (const auto which : {&Rates::in, &Rates::out, &Rates::both})
    fmt::print("  {:6.1f} {:4.0f} %", middle(rates, which),
               100 * middle(rates, which) / middle(of, which));
  fmt::print("\n");
}

int run() {
  const auto driver = open_driver(0);
  Plain plain(*driver);
  Engine pools(*driver);
  const auto prefetching = make_managed_driver(open_driver(0));
  Engine managed(*prefetching);
  std::vector<Rates> link, mapped, prefetched;
  for (int round = 0; round < kRounds; ++round) {
    link.push_back(plain.measure());
    mapped.push_back(pools.measure());
    prefetched.push_back(managed.measure());
  }
  fmt::print("GB/s, and of plain copies     {:>13}  {:>13}  {:>13}\n", "in", "out", "both at once");
  print("plain copies, 2 MiB, pinned", link, link);
  print("engine, mapped and unmapped", mapped, link);
  print("engine, managed, prefetched", prefetched, link);
  return 0;
}

}  // namespace
}  // namespace sentinel::gpu

int main() try { return sentinel::gpu::run(); } catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
