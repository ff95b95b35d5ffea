// The access source that needs no kernel patch: MINOR faults of shared memory
// (docs/design/counting.md).
//
// Tracked memory is a MAP_SHARED memfd mapping that is registered for MINOR faults with the fault
// loop and whose pages exist in the file (a hole is filled by the kernel without telling anyone).
// Arming takes pages out of the page table; the touch that follows is reported, counted, and
// answered by mapping the page again. Kernel-mode accesses (read(2), O_DIRECT, process_vm_readv)
// count like any other. An opening is a read or a write by the access that opened the page.
//
// Exactness:
// - Windows of 64 pages and more: a page leaves as soon as W others have been opened, so that an
//   instruction whose pages straddle the window's end may open one of them again.
// - Smaller windows: no page leaves before the instruction that opened others has retired, which
//   takes a single step per opening (x86-64 only; see single_step.h). Where that cannot be waited
//   for, more pages stay open, or there would be no progress: 4 by a system call, 32 by a thread
//   that blocks SIGTRAP. The thread's next opening closes them.
// - Weighted openings (stride > 1): a window never holds fewer than 32 pages. Those that left it
// are
//   armed again in company, when 64 have gathered or a sixteenth of the window's pages: one call
//   and one interruption of the other processors for all. Option `in_company` says so of all pages.
//
// Precondition: memory is disarmed, or the source destroyed, before it is unmapped or replaced. A
// page that leaves a window is dropped from the page table; were there private memory at its
// address by then, that memory's contents would be lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "capture/page_index.h"
#include "capture/tag_counters.h"
#include "capture/userfault/fault_loop.h"
#include "capture/userfault/page_unmapper.h"
#include "capture/userfault/single_step.h"
#include "capture/userfault/thread_windows.h"
#include "sentinel/access_source.h"

namespace sentinel {

class UserfaultSource final : public AccessSource, private Stepped {
 public:
  struct Options {
    std::uint32_t window_pages = 8192;  // W
    std::uint64_t seed = 0;             // of the sampled pages' places
    bool in_company = false;            // pages that left a window are armed again together
    // An untracked page is mapped together with its untracked neighbours in this aligned block.
    std::size_t around_bytes = std::size_t{2} << 20;
  };

  // Throws Error where the loop cannot count or a small window cannot be counted exactly. Leaves
  // the loop's handlers alone: hang answer() there, or call count() from a handler that is there.
  UserfaultSource(FaultLoop&, const Options&);
  ~UserfaultSource();

  // By what share of a window pages are armed late on average, where they are in company. Counts
  // are too low by no more than that as long as they fall no faster than the window grows.
  static constexpr double kLateness = 1.0 / 32;

  // Resolves a MINOR fault, and counts it if its page is armed. From the loop thread. False if the
  // page could not be mapped (unmapped meanwhile, or not in the file): whoever waits still does.
  static bool count(void* source, const Fault&) noexcept;
  static void answer(void* source, const Fault&) noexcept;  // the same as a FaultHandler

  const SourceInfo& info() const override { return info_; }
  int arm(std::span<const ArmRange>) noexcept override;
  int disarm(std::span<const ArmRange>) noexcept override;
  int drain(std::vector<PageCount>& out) noexcept override;

 private:
  static constexpr std::size_t kExact = 64;  // windows from here on need no single steps
  static constexpr std::size_t kInstruction =
      32;                                        // pages that an x86 instruction can need (gather)
  static constexpr std::size_t kSystemCall = 4;  // pages that the kernel touches without a retry
  static constexpr std::size_t kCompany = 64;    // pages armed again together

  bool small() const noexcept { return window_ < kExact; }
  int track(const ArmRange&) noexcept;
  bool resolve(const Fault&) noexcept;
  bool pass(std::uintptr_t page, const PageRecord*) noexcept;
  void map_untracked(std::uintptr_t begin, std::uintptr_t end) noexcept;
  bool wait_for_step(ThreadState&, const Fault&, std::size_t& floor) noexcept;
  void open(ThreadState&, std::uintptr_t page, PageRecord&, bool write) noexcept;
  void shrink(ThreadState&, std::size_t floor) noexcept;
  void arm_again(const Opening&) noexcept;
  void flush_pending() noexcept;

  bool begin(pid_t tid) noexcept override;
  bool end(pid_t tid) noexcept override;

  FaultLoop& loop_;
  const std::uint64_t window_, seed_;
  const std::size_t around_;
  const bool in_company_;
  SourceInfo info_;

  std::mutex callers_;  // arm, disarm and drain; may be held while allocating
  // Faults, steps and callers; holders neither allocate nor touch tracked memory. Guards what
  // follows, but for the slots of counters_, which are the callers'.
  std::mutex lock_;
  PageIndex pages_;
  TagCounters counters_;
  ThreadWindows threads_;
  PageUnmapper unmapper_;
  Opening pending_[kCompany];  // left their window, still mapped
  std::size_t pending_count_ = 0;
  std::uint64_t pending_pages_ = 0;  // that they stand for
  std::uint64_t serial_ = 0;
  std::atomic<std::size_t> touched_{0};
  std::unique_ptr<SingleStep> single_step_;  // last: its handler uses all of the above
};

}  // namespace sentinel
