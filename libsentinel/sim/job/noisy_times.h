// How long each op of a job takes alone on the machine, with the noise of its seed. It has no
// state: the same step and op give the same time.
#pragma once

#include <cstdint>

#include "sentinel/profile.h"
#include "sim/fluid/simulation.h"
#include "sim/job/noise.h"

namespace sentinel::sim {

class NoisyTimes {
 public:
  // `job` is the job's index in the simulation; other jobs of the same profile meet other times.
  NoisyTimes(const Profile& profile, const SimOptions& options, std::uint64_t job)
      : profile_(profile), noise_(options.noise), seed_(options.seed), job_(job) {}

  // As profiled.
  double profiled_us(OpId op) const { return profile_.ops[op.index()].us; }
  double us(std::uint32_t step, OpId op, bool replay = false) const {
    return profiled_us(op) * noise_factor(noise_, seed_, job_, step, op.value, replay);
  }
  // All ops of the step together.
  double ideal_us(std::uint32_t step) const {
    return noisy_ideal_us(profile_, noise_, seed_, job_, step);
  }

 private:
  const Profile& profile_;
  double noise_;
  std::uint64_t seed_, job_;
};

}  // namespace sentinel::sim
