// Simulation of policies that are driven by page faults, and of memory that is a hardware cache.
//
// An op of the profile is one kernel. It starts when all blocks it names have been in fast memory
// (at once, where fast memory holds them all), faulting on those that are absent, and then computes
// for its own time; meanwhile only what the pager asked for moves. Tensors lie where a model of
// PyTorch's caching allocator puts them (sim/caching_allocator.h); an op whose blocks exceed fast
// memory evicts its own, counted as streamed.
//
// Such policies learn: after SimOptions::steps the simulation goes on until three steps in a row
// take the same time within 0.1 % and a policy with tables faults, where its tables suffice, on no
// more than 0.01 % of the blocks of the first step; for at most kMoreSteps and until kMostOps ops,
// or ops that name kMostTouchedBytes, have run, or the time limit has passed; not where a single
// step was asked for. The last step is the one reported.
#pragma once

#include "sentinel/paging.h"
#include "sim/simulator.h"

namespace sentinel::sim {

constexpr std::uint32_t kMoreSteps = 40;
constexpr std::uint64_t kMostTouchedBytes = 32ull << 40;
constexpr std::uint64_t kMostOps = 1 << 20;
// Of one step: more is refused.
constexpr std::uint64_t kMostStepBytes = 16ull << 40, kMostAddresses = 4ull << 40;

// Throws Error where fast memory holds less than a block, where a step names too much, where the
// slow tier of a hardware cache is not byte-addressable, and what the policy throws.
SimResult simulate(const Profile&, const Machine&, PagedPolicy&, const PlanOptions&,
                   const SimOptions&);

// Unified memory under a pager of one's own.
SimResult simulate(const Profile&, const Machine&, Pager&, const SimOptions&);

}  // namespace sentinel::sim
