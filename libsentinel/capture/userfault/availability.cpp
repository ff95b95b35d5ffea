// Probes userfaultfd and its features, and judges each mechanism by what it found.
#include "capture/userfault/availability.h"

#include <unistd.h>

#include "capture/userfault/uffd_abi.h"

namespace sentinel {
namespace {

// A mechanism that is one feature bit of a usable userfaultfd.
struct FeatureRow {
  const char* name;
  std::uint64_t feature;
  const char *reason, *remedy;
};

constexpr FeatureRow kFeatures[] = {
    {"page counting", UFFD_FEATURE_MINOR_SHMEM, "this kernel has no MINOR faults on shared memory",
     "use Linux 5.14 or later; until then op inputs and outputs are taken for accesses"},
    {"counting to moving", UFFD_FEATURE_EVENT_REMAP,
     "this kernel does not keep userfaultfd registrations over mremap", "use Linux 4.11 or later"},
    {"counting private memory", UFFD_FEATURE_RWP,
     "this kernel's userfaultfd has no read-write protection",
     "none needed: memory is shared while userfaultfd counts. Kernels after Linux 7.2 are to have "
     "it"},
    {"frame moving", UFFD_FEATURE_MOVE, "this kernel has no UFFDIO_MOVE",
     "use Linux 6.8 or later; until then fetched frames are copied"},
};

bool usable(const UffdProbe& probe) { return probe.device_error == 0 || probe.syscall_error == 0; }

CaptureMechanism judge_feature(const FeatureRow& row, const UffdProbe& probe) {
  if (!usable(probe)) return {row.name, false, "userfaultfd cannot be used", "see userfaultfd"};
  if (probe.features & row.feature) return {row.name, true, "", ""};
  return {row.name, false, row.reason, row.remedy};
}

CaptureMechanism judge_small_windows(const CaptureFacts& facts) {
  constexpr const char* name = "counting with windows under 64 pages";
  if (!usable(facts.userfaultfd))
    return {name, false, "userfaultfd cannot be used", "see userfaultfd"};
  if (!facts.x86_64)
    return {name, false, "single-stepping needs an x86-64 processor",
            "use a window of 64 pages or more"};
  if (!facts.proc_mounted)
    return {name, false, "/proc is not mounted", "mount it, or use a window of 64 pages or more"};
  return {name, true, "", ""};
}

}  // namespace

CaptureFacts probe_capture() {
  CaptureFacts facts{.userfaultfd = probe_userfaultfd()};
#if !defined(__x86_64__)
  facts.x86_64 = false;
#endif
  facts.proc_mounted = access("/proc/self/task", R_OK) == 0;
  return facts;
}

std::vector<CaptureMechanism> judge_capture(const CaptureFacts& facts) {
  std::vector<CaptureMechanism> mechanisms;
  if (usable(facts.userfaultfd)) {
    mechanisms.push_back({"userfaultfd", true, "", ""});
  } else {
    const UffdRefusal refusal = explain_refusal(facts.userfaultfd);
    mechanisms.push_back({"userfaultfd", false, refusal.reason, refusal.remedy});
  }
  for (const FeatureRow& row : kFeatures)
    mechanisms.push_back(judge_feature(row, facts.userfaultfd));
  mechanisms.push_back(judge_small_windows(facts));
  return mechanisms;
}

}  // namespace sentinel
