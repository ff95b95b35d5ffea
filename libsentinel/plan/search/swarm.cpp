// Moves particles towards the best choices known, with seeded chance.
#include "plan/search/swarm.h"

#include <tbb/enumerable_thread_specific.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/in_parallel.h"
#include "plan/search/cost_run.h"
#include "plan/search/search.h"

namespace sentinel::plan {
namespace {

using Choices = std::vector<Remedy>;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kTrialsPerLook = 32;  // at the clock
// Share of choices that a particle draws anew when it begins: mostly few, which costs few trials.
constexpr std::array kChanged{0.004, 0.01, 0.02, 0.05};
constexpr std::size_t kSeedParticles = 4;
constexpr std::uint32_t kSeedEvery = 100, kRandomEvery = 50;  // particles that begin far away

struct Particle {
  Choices now, best;
  Cost best_cost;
  bool begun = false;
};

class Swarm {
 public:
  Swarm(const CostModel& model, const SwarmOptions& options)
      : model_(model),
        options_(options),
        particles_(kParticles),
        runs_([&model] { return CostRun(model); }) {}

  SwarmResult search(const std::vector<Choices>& seeds) {
    begin(seeds);
    const std::uint32_t round = options_.as_published ? kParticles : kRound;
    const std::uint64_t rounds = options_.rounds * kRound / round;
    std::uint64_t since_gain = 0, done = 0;
    for (; done < rounds && since_gain < options_.patience && !late(); ++done) {
      move(static_cast<std::uint32_t>(done * round % kParticles), round, done);
      if (cut_) break;
      since_gain = renew(round, done) || options_.as_published ? 0 : since_gain + 1;
    }
    CostRun run(model_);
    const Cost cost = run.evaluate(best_);
    return {best_, run.tiers(), cost, done * round / kRound};
  }

 private:
  bool late() const { return Clock::now() >= options_.deadline; }

  // The best seed is the swarm's first best vector; the next ones begin as particles.
  void begin(const std::vector<Choices>& seeds) {
    CostRun run(model_);
    if (options_.as_published) {
      Random random(options_.seed);
      best_ = changed(seeds.front(), 1, random);
      best_cost_ = run.evaluate(best_);
      return;
    }
    std::vector<std::pair<Cost, std::size_t>> order;
    for (std::size_t i = 0; i < seeds.size() && (i == 0 || !late()); ++i)
      order.emplace_back(run.evaluate(seeds[i]), i);
    std::ranges::sort(order);
    best_ = seeds[order.front().second];
    best_cost_ = order.front().first;
    for (std::size_t n = 1; n < std::min(order.size(), kSeedParticles + 1); ++n)
      particles_[n * kSeedEvery].now = seeds[order[n].second];
  }

  void move(std::uint32_t first, std::uint32_t count, std::uint64_t turn) {
    in_parallel(count, [&](std::size_t n) {
      const auto i = first + static_cast<std::uint32_t>(n);
      Random random(options_.seed, turn * kParticles + i);
      move(particles_[i], i, random, runs_.local());
    });
  }

  // Algorithm 3 for one particle.
  void move(Particle& p, std::uint32_t index, Random& random, CostRun& run) {
    if (cut_) return;
    if (!p.begun && p.now.empty()) p.now = first_choices(index, random);
    if (p.begun && !options_.as_published && p.now == best_) {
      p.now = changed(best_, kChanged[random.below(kChanged.size())], random);
      p.begun = false;
    }
    const Cost cost = run.evaluate(p.now);
    if (!p.begun || cost < p.best_cost) p.best = p.now, p.best_cost = cost;
    p.begun = true;
    std::uint32_t trials = 0;
    for (std::uint32_t j = 0; j < p.now.size(); ++j) {
      const Remedy shared = best_[j], own = p.best[j], now = run.choices()[j];
      if (shared == own && own == now) continue;
      if (++trials % kTrialsPerLook == 0 && late()) cut_ = true;
      if (cut_) return;
      const Remedy chosen =
          shared == own || !(run.trial(j, shared) < run.trial(j, own)) ? own : shared;
      if (chosen != now) run.apply(j, chosen);
    }
    p.now = run.choices();
    if (run.cost() < p.best_cost) p.best = p.now, p.best_cost = run.cost();
  }

  Choices first_choices(std::uint32_t index, Random& random) const {
    if (options_.as_published || index % kRandomEvery == kRandomEvery - 1)
      return changed(best_, 1, random);
    return changed(best_, kChanged[index % kChanged.size()], random);
  }

  // At least one choice is drawn anew, others with this probability.
  Choices changed(Choices choices, double share, Random& random) const {
    if (choices.empty()) return choices;
    const auto redraw = [&](std::uint32_t j) {
      choices[j] = static_cast<Remedy>(random.below(model_.recomputable(j) ? 3 : 2));
    };
    for (std::uint32_t j = 0; j < choices.size(); ++j)
      if (random.share() < share) redraw(j);
    redraw(static_cast<std::uint32_t>(random.below(choices.size())));
    return choices;
  }

  // The best of the particles that moved, if it is better.
  bool renew(std::uint32_t count, std::uint64_t turn) {
    const auto first = static_cast<std::uint32_t>(turn * count % kParticles);
    bool gain = false;
    for (std::uint32_t i = first; i < first + count; ++i)
      if (particles_[i].best_cost < best_cost_) {
        best_ = particles_[i].best;
        best_cost_ = particles_[i].best_cost;
        gain = true;
      }
    return gain;
  }

  const CostModel& model_;
  const SwarmOptions& options_;
  std::vector<Particle> particles_;
  tbb::enumerable_thread_specific<CostRun> runs_;
  Choices best_;
  Cost best_cost_;
  std::atomic<bool> cut_ = false;
};

}  // namespace

SwarmResult swarm_search(const CostModel& model, const std::vector<Choices>& seeds,
                         const SwarmOptions& options) {
  SwarmResult result;
  in_quiet_thread([&] { result = Swarm(model, options).search(seeds); });
  return result;
}

}  // namespace sentinel::plan
