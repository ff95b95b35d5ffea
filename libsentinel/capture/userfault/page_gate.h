// How a tracked page is closed and opened: what OpeningSource leaves to a kind of page fault.
//
// Addresses are page aligned. Functions return 0 or a negative errno, allocate nothing and touch no
// tracked memory. All but prepare() and let_go() are called with the source's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capture/page_index.h"
#include "sentinel/access_source.h"

namespace sentinel {

class PageGate {
 public:
  virtual ~PageGate() = default;

  // The caller's thread: a range is about to be tracked / is tracked no more. `seed`: of the places
  // of its tracked pages (sampling.h). prepare() may touch the memory, none of which is tracked.
  virtual int prepare(const ArmRange&, std::uint64_t /*seed*/) noexcept { return 0; }
  virtual int let_go(std::uintptr_t /*begin*/, std::size_t /*bytes*/) noexcept { return 0; }

  // A touch of the page is a fault once flush() has returned. Pages may be closed before that.
  virtual void close(std::uintptr_t page) noexcept = 0;
  virtual bool closes_some() const noexcept = 0;
  virtual int flush() noexcept = 0;  // the errno of the first page that could not be closed

  // Ends the fault of whoever waits for it.
  virtual int open(std::uintptr_t page) noexcept = 0;
  // The same for a page that is not tracked, and those of its neighbours that are not either.
  virtual int open_untracked(std::uintptr_t page, PageIndex&) noexcept = 0;
};

}  // namespace sentinel
