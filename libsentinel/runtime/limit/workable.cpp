// Compares the options with the machine, and names what is missing.
#include "runtime/limit/workable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/units.h"
#include "capture/kernel_source.h"
#include "capture/userfault/uffd_abi.h"
#include "capture/userfault/uffd_open.h"
#include "engine/host/limits.h"
#include "engine/ssd/frame_use.h"
#include "engine/ssd/ssd_engine.h"
#include "runtime/limit/gpu_counting.h"
#include "sentinel/error.h"
#include "sentinel/paging.h"

namespace sentinel {
namespace {

[[noreturn]] void refuse(std::uint64_t fast_bytes, const SessionOptions& options,
                         const std::string& bounds) {
  const auto least = smallest_budget(options);
  if (options.gpu.device)
    throw Error(
        fmt::format("a budget of {} cannot work: a kernel's operands alone need {}, and what an op "
                    "uses at once has to fit; {}",
                    print_bytes(fast_bytes), print_bytes(least), bounds));
  if (options.tiers.nodes && !options.tiers.three())
    throw Error(fmt::format("a budget of {} is less than what moves at once, {}{}",
                            print_bytes(fast_bytes), print_bytes(least),
                            least == kGranule ? "; with --granule 4K less works" : ""));
  throw Error(
      fmt::format("a budget of {} ({} bytes) cannot work: the smallest that does is {} ({} bytes), "
                  "frames in flight and what one instruction of each of {} threads can touch; {}",
                  print_bytes(fast_bytes), fast_bytes, print_bytes(least), least,
                  std::min(thread_count(), FrameUse::kThreadsAtOnce), bounds));
}

// Over an SSD, blocks that arrive by a copy would not be barred.
void require_read_write_protection(const SessionOptions& options) {
  if ((probe_userfaultfd().features & UFFD_FEATURE_RWP) == 0)
    throw Error(
        "--count rwp needs read-write protection of userfaultfd (UFFD_FEATURE_RWP), which this "
        "kernel does not have; take userfaultfd",
        EOPNOTSUPP);
  if (!options.tiers.nodes && options.moves.move == "copy")
    throw Error(
        "--count rwp counts memory that moves by UFFDIO_MOVE, and SENTINEL_MOVE=copy has it "
        "copied; take userfaultfd");
}

}  // namespace

// A node's memory can be used in any amount, for slow memory serves what does not fit.
std::uint64_t smallest_budget(const SessionOptions& options) {
  constexpr std::uint64_t kOperands = 4;  // of one kernel, on a GPU
  if (options.gpu.device) return kOperands * options.tiers.granule_bytes;
  if (options.tiers.nodes && !options.tiers.three()) return options.tiers.granule_bytes;
  return SsdEngine::minimum_bytes(thread_count(), options.moves.depth);
}

void require_workable(std::uint64_t fast_bytes, const SessionOptions& options) {
  if (fast_bytes < smallest_budget(options))
    refuse(fast_bytes, options,
           "the bound of the Sentinel paper (section IV-E) depends on the model: `sentinel record` "
           "and `sentinel plan` name it");
}

void require_workable(std::uint64_t fast_bytes, const SessionOptions& options,
                      const Profile& profile, const Machine& machine, PlannedPolicy& policy) {
  if (fast_bytes >= smallest_budget(options)) return;
  const auto ample = policy.plan(profile, machine, {.fast_bytes = physical_bytes()});
  refuse(
      fast_bytes, options,
      fmt::format("from {} on no op has to be streamed; the bound of the Sentinel paper (section "
                  "IV-E), short-lived peak and largest long-lived tensor, is {}",
                  print_bytes(ample.smallest_unstreamed_budget), print_bytes(ample.paper_bound)));
}

void require_counting(const SessionOptions& options, gpu::Driver* driver) {
  if (options.gpu.device && (options.counting.watch_every != 0 || options.counting.inspect))
    throw Error("--watch and --inspect are of two nodes; a GPU's memory is on none");
  if (options.gpu.device) return gpu::require_source(options, driver);
  if (options.counting.source == kCupti)
    throw Error("--count cupti counts a GPU's page faults: give --tiers fast=gpu0,slow=host");
  if (options.counting.source == kRwp) require_read_write_protection(options);
  const bool in_place = options.tiers.nodes && !options.tiers.three();
  const bool stays = in_place || options.mode == Mode::record;
  const bool kernel = options.counting.source == "kernel",
             watch = options.counting.watch_every != 0;
  if (kernel && !stays)
    throw Error(
        "--count kernel: the kernel counts memory that stays where it is; use it with sentinel "
        "record, or with --tiers of two nodes");
  if (watch && !stays && !options.fast.unlimited())
    throw Error(
        "--watch counts memory that stays where it is; use it with --tiers of two nodes, or "
        "without --fast");
  if (const int code = kernel || watch ? KernelSource::probe() : 0; code != 0)
    throw Error(fmt::format("{} needs the patched kernel (kernel/README.md), which is not there",
                            kernel ? "--count kernel" : "--watch"),
                -code);
}

void require_policy(const SessionOptions& options) {
  const auto policy = make_policy(options.policy);
  if (dynamic_cast<const PlannedPolicy*>(policy.get()) != nullptr) return;
  const auto* paged = dynamic_cast<const PagedPolicy*>(policy.get());
  const bool pages = paged != nullptr && paged->mechanism() == Mechanism::unified_memory;
  if (pages && !options.plan.empty())
    throw Error(
        fmt::format("policy {} makes no plan, and {} is one", options.policy, options.plan));
  if (pages && options.gpu.device) return;
  throw Error(fmt::format(
      "policy {} makes no plan; {}", options.policy,
      pages ? "without one a policy trains on a GPU's memory alone (--tiers fast=gpu0,slow=host)"
            : "`sentinel simulate` shows what it does"));
}

void require_live(const Plan& plan, const SessionOptions& options, bool replays) {
  if (plan.granule_bytes != options.tiers.granule_bytes)
    throw Error(fmt::format(
        "the plan is for machine {}, whose memory is managed by {}; here it is by {}. "
        "Make one for this machine: sentinel plan --machine local",
        plan.machine, print_bytes(plan.granule_bytes), print_bytes(options.tiers.granule_bytes)));
  if (plan.part_bytes != 0)
    throw Error(
        "the plan moves parts of tensors; a training run moves whole tensors. Make one for this "
        "machine: sentinel plan --machine local");
  if (!plan.recomputations.empty() && !options.moves.recompute)
    throw Error(
        "the plan recomputes tensors, and recomputation is off (SENTINEL_RECOMPUTE=0). Switch it "
        "on, or "
        "make a plan that only moves them: sentinel plan --machine local");
  if (!plan.recomputations.empty() && !replays)
    throw Error(
        "the plan recomputes tensors, which this framework's adaptor or this slow tier cannot. "
        "Make one that only moves them: sentinel plan --machine local");
}

}  // namespace sentinel
