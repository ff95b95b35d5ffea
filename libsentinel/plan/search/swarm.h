// Particle swarm over the choices of a cost model, as HOME searches (its Algorithms 1 and 3): a
// particle is a vector of choices; in its turn each of its choices becomes, of the swarm's best and
// its own best vector, the one that costs less in its present surroundings.
//
// Departures, for speed: particles move in rounds of kRound, after each of which the swarm's best
// is renewed, so that one iteration of the paper is kParticles / kRound rounds; some particles
// begin near the best seed, not at random; a particle that has become the swarm's best begins anew
// near it. What costs no evaluation (both vectors agree) is not evaluated.
//
// Deterministic for seed and effort whatever the number of threads: particles of one round do not
// see each other, random numbers depend on particle and turn, and a round that the deadline cuts
// is dropped.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "plan/search/cost_model.h"

namespace sentinel::plan {

// The paper's parameters (section 3.3).
constexpr std::uint32_t kParticles = 500;
constexpr std::uint64_t kIterations = 500;
constexpr std::uint32_t kRound = 20;
constexpr std::uint64_t kRoundsPerIteration = kParticles / kRound;

struct SwarmOptions {
  std::uint64_t seed = 0;
  std::uint64_t rounds = kIterations * kRoundsPerIteration;
  std::uint64_t patience = 4 * kRoundsPerIteration;  // ends after so many rounds without a gain
  std::chrono::steady_clock::time_point deadline;
  bool as_published = false;  // random particles only, the best renewed once an iteration, no end
                              // before the last one; the seeds are not used
};

struct SwarmResult {
  std::vector<Remedy> choices;
  std::vector<std::uint8_t> tiers;
  Cost cost;
  std::uint64_t rounds = 0;  // completed
};

// At least one seed. Uses all processors.
SwarmResult swarm_search(const CostModel&, const std::vector<std::vector<Remedy>>& seeds,
                         const SwarmOptions&);

}  // namespace sentinel::plan
