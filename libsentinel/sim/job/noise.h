// Kernel-time noise: what each op's time is multiplied by.
#pragma once

#include <cstdint>
#include <random>

#include "sentinel/profile.h"

namespace sentinel::sim {

// From [1 - noise, 1 + noise], by seed, job, step and op alone, so that every policy meets the same
// times; a replay's are drawn apart from the op's.
inline double noise_factor(double noise, std::uint64_t seed, std::uint64_t job, std::uint64_t step,
                           std::uint64_t op, bool replay = false) {
  if (noise <= 0) return 1;
  std::seed_seq place{seed, seed >> 32, job, step, op, std::uint64_t{replay}};
  std::minstd_rand random(place);
  return std::uniform_real_distribution(1 - noise, 1 + noise)(random);
}

// What the ops of that step compute together: the step's ideal, by the times that it meets.
inline double noisy_ideal_us(const Profile& profile, double noise, std::uint64_t seed,
                             std::uint64_t job, std::uint64_t step) {
  double sum = 0;
  for (std::size_t k = 0; k < profile.ops.size(); ++k)
    sum += profile.ops[k].us * noise_factor(noise, seed, job, step, k);
  return sum;
}

}  // namespace sentinel::sim
