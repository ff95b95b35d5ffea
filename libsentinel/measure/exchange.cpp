// Exchanges two sets of blocks through an engine, and times it with and without arithmetic
// beside it.
#include "measure/exchange.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/quiet_thread.h"
#include "engine/granule.h"

namespace sentinel {
namespace {

// Equal parts on every processor, then a barrier, again and again, through more than a cache holds:
// as training does, it takes the bandwidth of the memory that moving takes, too.
class Arithmetic {
 public:
  Arithmetic() {
    const auto processors = std::max(1u, std::thread::hardware_concurrency());
    values_ = std::min<std::size_t>(16 << 20, (128 << 20) / processors);
    try {
      while (threads_.size() < processors) threads_.push_back(quiet_thread([this] { compute(); }));
    } catch (const std::system_error&) {  // with those that could be had
    }
    barrier_.emplace(static_cast<std::ptrdiff_t>(threads_.size()), Count{this});
    begun_ = true;
    begun_.notify_all();
  }
  ~Arithmetic() {
    stop_ = true;
    for (auto& thread : threads_) thread.join();
  }

  std::uint64_t rounds() const { return rounds_; }

 private:
  static constexpr std::size_t kParts = 16;  // of which one is computed with in a round
  struct Count {
    Arithmetic* of;
    void operator()() noexcept {
      ++of->rounds_;
      of->over_ = of->stop_;
    }
  };

  void compute() {
    std::vector<float> values(values_, 1);
    const std::size_t part = values_ / kParts;
    begun_.wait(false);
    while (!over_) {
      float* from = values.data() + rounds_ % kParts * part;
      for (std::size_t i = 0; i < part; ++i) from[i] = from[i] * 0.75f + 0.25f;
      sink_ = *from;
      barrier_->arrive_and_wait();
    }
  }

  std::size_t values_ = 0;  // of each thread
  std::atomic<bool> begun_ = false, stop_ = false;
  std::atomic<std::uint64_t> rounds_ = 0;
  std::atomic<float> sink_ = 0;
  bool over_ = false;  // the same for every thread: written while all of them wait
  std::optional<std::barrier<Count>> barrier_;
  std::vector<std::thread> threads_;
};

}  // namespace

Exchange::Exchange(const EngineOptions& options, std::uint64_t blocks)
    : engine_(options), blocks_(blocks) {
  const auto least = SsdEngine::minimum_bytes(1, options.depth) / kGranule;
  const auto resident = std::max(blocks / 3, least);
  ahead_ = std::min<std::uint64_t>(12, resident / 2);
  engine_.set_budget(resident * kGranule);
  for (std::uint64_t n = 0; n < blocks; ++n) {
    engine_.on_allocate(at(n), kGranule);
    auto* words = reinterpret_cast<std::uint64_t*>(at(n));
    for (std::uint64_t i = 0; i < kGranule / 8; ++i) words[i] = (n + i) * 0x9E3779B97F4A7C15ull;
    engine_.demote(at(n), kGranule);
  }
}

void Exchange::settle() const {
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
    engine_.on_free(at(n), kGranule, true);
    engine_.on_allocate(at(n + blocks_), kGranule);
    touch(n + blocks_);
    engine_.demote(at(n + blocks_), kGranule);
  }
  return {seconds_since(begin), moved() - before};
}

double measure_cpu_s_per_gb(const EngineOptions& options, std::uint64_t blocks) {
  constexpr int kTurns = 24;
  constexpr double kEnoughS = 3;
  Exchange exchange(options, blocks);
  Arithmetic arithmetic;
  Exchange::Run moving{};
  double alone_s = 0, alone = 0, beside = 0;  // seconds; rounds of arithmetic
  const auto start = Clock::now();
  for (int turn = 0; turn < 2 || (turn < kTurns && seconds_since(start) < kEnoughS); ++turn) {
    exchange.settle();
    auto before = arithmetic.rounds();
    const auto begin = Clock::now();
    usleep(100000);
    alone_s += seconds_since(begin);
    alone += static_cast<double>(arithmetic.rounds() - before);
    before = arithmetic.rounds();
    const auto run = exchange.run();
    beside += static_cast<double>(arithmetic.rounds() - before);
    moving.seconds += run.seconds;
    moving.bytes += run.bytes;
  }
  if (alone == 0 || moving.bytes == 0) return 0;
  const double lost_s = moving.seconds - beside * alone_s / alone;
  return std::max(0.0, lost_s) / (static_cast<double>(moving.bytes) / 1e9);
}

}  // namespace sentinel
