#include "execute/measure_exchange.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "execute/backing.h"

namespace sentinel {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Equal parts on every processor, then a barrier, again and again.
class Arithmetic {
 public:
  Arithmetic() : threads_(std::max(1u, std::thread::hardware_concurrency())) {
    for (unsigned i = 0; i < threads_; ++i) pool_.emplace_back([this] { compute(); });
  }
  ~Arithmetic() { stop_ = true; }

  std::uint64_t rounds() const { return rounds_; }

 private:
  struct Count {
    Arithmetic* of;
    void operator()() noexcept {
      ++of->rounds_;
      of->over_ = of->stop_;
    }
  };

  void compute() {
    std::vector<float> values(kValues, 1);
    while (!over_) {
      for (float& v : values) v = v * 0.75f + 0.25f;
      barrier_.arrive_and_wait();
    }
  }

  static constexpr std::size_t kValues = 1 << 21;
  unsigned threads_;
  std::atomic<std::uint64_t> rounds_ = 0;
  std::atomic<bool> stop_ = false;
  bool over_ = false;  // the same for every thread: written while all of them wait
  std::barrier<Count> barrier_{threads_, Count{this}};
  std::vector<std::jthread> pool_;
};

}  // namespace

Exchange::Exchange(const EngineOptions& options, std::uint64_t blocks)
    : engine_(options), blocks_(blocks) {
  const auto least = FrameEngine::minimum_bytes(1, options.depth) / kGranule;
  const auto resident = std::max(blocks / 3, least);
  ahead_ = std::min<std::uint64_t>(12, resident / 2);
  engine_.set_budget(resident * kGranule);
  for (std::uint64_t n = 0; n < blocks; ++n) {
    engine_.occupy(at(n), kGranule);
    auto* words = reinterpret_cast<std::uint64_t*>(at(n));
    for (std::uint64_t i = 0; i < kGranule / 8; ++i) words[i] = (n + i) * 0x9E3779B97F4A7C15ull;
    engine_.demote(at(n), kGranule);
  }
  for (auto before = ~0ull; before != moved(); usleep(20000)) before = moved();
}

std::uint64_t Exchange::moved() const {
  const auto counters = engine_.counters();
  return counters.promoted_bytes + counters.demoted_bytes;
}

void Exchange::touch(std::uint64_t n) const {
  *reinterpret_cast<volatile std::uint64_t*>(at(n)) = n;
}

Exchange::Run Exchange::run() {
  for (std::uint64_t n = 0; n < ahead_; ++n) engine_.promote(at(n), kGranule);
  const auto before = moved();
  const auto begin = Clock::now();
  for (std::uint64_t n = 0; n < 2 * blocks_; ++n) {
    engine_.tick();
    engine_.promote(at(n + ahead_), kGranule);
    engine_.await(at(n), kGranule);
    touch(n);
    engine_.vacate(at(n), kGranule, true);
    engine_.occupy(at(n + blocks_), kGranule);
    touch(n + blocks_);
    engine_.demote(at(n + blocks_), kGranule);
  }
  return {seconds_since(begin), moved() - before};
}

double measure_cpu_s_per_gb(const EngineOptions& options, std::uint64_t blocks) {
  constexpr int kTurns = 12;
  Exchange exchange(options, blocks);
  Arithmetic arithmetic;
  Exchange::Run moving{};
  double alone_s = 0, alone = 0, beside = 0;  // seconds; rounds of arithmetic
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto rounds = [&, before = arithmetic.rounds()] {
      return static_cast<double>(arithmetic.rounds() - before);
    };
    const auto begin = Clock::now();
    usleep(100000);
    alone_s += seconds_since(begin);
    alone += rounds();
    const auto run = exchange.run();
    moving.seconds += run.seconds;
    moving.bytes += run.bytes;
    beside += rounds();
  }
  beside -= alone;
  const double lost_s = moving.seconds - beside * alone_s / alone;
  return std::max(0.0, lost_s) / (static_cast<double>(moving.bytes) / 1e9);
}

}  // namespace sentinel
