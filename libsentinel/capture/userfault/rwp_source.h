// The access source on userfaultfd's read-write protection (docs/design/counting.md): counts
// private anonymous memory where it lies, by a kernel without our patch. Arming bars pages
// (FaultLoop::bar()); the touch that follows is reported, counted, and answered by unbarring the
// page. Exactness: opening_source.h.
//
// Tracked memory is registered for bars with the fault loop. The kernel bars pages that are present
// and makes absent ones without a word. So either the source makes them itself as it arms
// (`populates`), or whoever serves the range's MISSING faults does so by FaultLoop::move(), which
// leaves them barred.
//
// Memory that is unmapped, or dropped by madvise, is disarmed by that.
#pragma once

#include "capture/userfault/opening_source.h"

namespace sentinel {

class RwpSource final : public OpeningSource {
 public:
  struct Options : OpeningOptions {
    bool populates = true;  // false: the range's MISSING faults are served, by move()
  };

  // Throws Error where the kernel has no such protection or a small window cannot be counted
  // exactly. Leaves the loop's handlers alone: hang answer() there, or call count().
  RwpSource(FaultLoop&, const Options&);

  // Resolves a fault of barred memory, and counts it if its page is armed. From the loop thread.
  // False if the page could not be unbarred (unmapped meanwhile): whoever waits still does.
  static bool count(void* source, const Fault&) noexcept;
  static void answer(void* source, const Fault&) noexcept;  // the same as a FaultHandler

 private:
  FaultLoop& loop_;
};

}  // namespace sentinel
