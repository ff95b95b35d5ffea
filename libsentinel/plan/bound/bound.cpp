// Solves the bound's program with ever more intervals, within a time and a number of columns.
#include "plan/bound/bound.h"

#include <algorithm>

#include "base/clock.h"
#include "plan/bound/bound_model.h"
#include "plan/bound/bound_program.h"
#include "plan/solver/linear_program.h"
#include "plan/solver/processor_share.h"
#include "plan/step/rates.h"
#include "sentinel/analysis.h"

namespace sentinel::plan {
namespace {

constexpr std::uint32_t kFirst = 100;     // buckets of the first program
constexpr std::uint32_t kGrowth = 3;      // of the next one
constexpr std::size_t kColumns = 20'000;  // no program has more but the first

}  // namespace

Bound lower_bound(const Profile& profile, const Machine& machine, const BoundOptions& options) {
  const auto begin = Clock::now();
  Bound best{.step_us = ideal_us(profile)};
  if (machine.tiers.size() < 2 || profile.ops.empty() || has_in_place(machine)) return best;
  const StepFacts facts = step_facts(profile, machine, options.fast_bytes, options.recompute);
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  std::uint32_t count = std::min(ops, options.buckets > 0 ? options.buckets : kFirst);
  while (true) {
    const Buckets buckets(profile, facts, count);
    const BoundProgram program(profile, machine, facts, buckets, options);
    if (program.trivial()) break;
    const double left = options.time_limit_s - seconds_since(begin);
    if (left <= 0 || !LinearProgram::solvable()) {
      best.exact = best.buckets > 0;
      break;
    }
    Bound found = program.solve(left * processor_share());
    const bool solved = found.exact;
    if (found.exact || found.step_us > best.step_us) best = std::move(found);
    if (!solved || options.buckets > 0 || count == ops || program.columns() * kGrowth > kColumns)
      break;
    count = std::min(ops, count * kGrowth);
  }
  return best;
}

}  // namespace sentinel::plan
