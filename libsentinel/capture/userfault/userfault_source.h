// The access source that needs no kernel patch: MINOR faults of shared memory
// (docs/design/counting.md).
//
// Tracked memory is a MAP_SHARED memfd mapping that is registered for MINOR faults with the fault
// loop and whose pages exist in the file (a hole is filled by the kernel without telling anyone).
// Arming takes pages out of the page table; the touch that follows is reported, counted, and
// answered by mapping the page again. Exactness: opening_source.h.
//
// Precondition: memory is disarmed, or the source destroyed, before it is unmapped or replaced. A
// page that leaves a window is dropped from the page table; were there private memory at its
// address by then, that memory's contents would be lost.
#pragma once

#include "capture/userfault/opening_source.h"

namespace sentinel {

class UserfaultSource final : public OpeningSource {
 public:
  using Options = OpeningOptions;

  // Throws Error where the loop cannot count or a small window cannot be counted exactly. Leaves
  // the loop's handlers alone: hang answer() there, or call count() from a handler that is there.
  UserfaultSource(FaultLoop&, const Options&);

  // Resolves a MINOR fault, and counts it if its page is armed. From the loop thread. False if the
  // page could not be mapped (unmapped meanwhile, or not in the file): whoever waits still does.
  static bool count(void* source, const Fault&) noexcept;
  static void answer(void* source, const Fault&) noexcept;  // the same as a FaultHandler

 private:
  FaultLoop& loop_;
};

}  // namespace sentinel
