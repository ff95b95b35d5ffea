// Counts openings by page faults (docs/design/counting.md): the windows, their tags and single
// steps. Which kind of fault closes and opens a page is its gate's: UserfaultSource and RwpSource.
//
// Kernel-mode accesses (read(2), O_DIRECT, process_vm_readv) count like any other. An opening is a
// read or a write by the access that opened the page.
//
// Exactness:
// - Windows of 64 pages and more: a page leaves as soon as W others have been opened, so that an
//   instruction whose pages straddle the window's end may open one of them again.
// - Smaller windows: no page leaves before the instruction that opened others has retired, which
//   takes a single step per opening (x86-64 only; see single_step.h). Where that cannot be waited
//   for, more pages stay open, or there would be no progress: 4 by a system call, 32 by a thread
//   that blocks SIGTRAP. The thread's next opening closes them.
// - Weighted openings (stride > 1): a window never holds fewer than 32 pages. Those that left it
//   are armed again in company, when 64 have gathered or a sixteenth of the window's pages: one
//   flush for all. Option `in_company` says so of all pages.
//
// A page that could not be armed again is not counted any more; the next drain() answers its errno.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "capture/page_index.h"
#include "capture/tag_counters.h"
#include "capture/userfault/fault_loop.h"
#include "capture/userfault/page_gate.h"
#include "capture/userfault/single_step.h"
#include "capture/userfault/thread_windows.h"
#include "sentinel/access_source.h"

namespace sentinel {

struct OpeningOptions {
  std::uint32_t window_pages = 8192;  // W
  std::uint64_t seed = 0;             // of the sampled pages' places
  bool in_company = false;            // pages that left a window are armed again together
  // An untracked page is opened together with its untracked neighbours in this aligned block.
  std::size_t around_bytes = std::size_t{2} << 20;
};

class OpeningSource : public AccessSource, private Stepped {
 public:
  ~OpeningSource() override;
  OpeningSource(const OpeningSource&) = delete;
  OpeningSource& operator=(const OpeningSource&) = delete;

  // By what share of a window pages are armed late on average, where they are in company. Counts
  // are too low by no more than that as long as they fall no faster than the window grows.
  static constexpr double kLateness = 1.0 / 32;

  const SourceInfo& info() const override { return info_; }
  int arm(std::span<const ArmRange>) noexcept override;
  int disarm(std::span<const ArmRange>) noexcept override;
  int drain(std::vector<PageCount>& out) noexcept override;

 protected:
  // Throws Error where a small window cannot be counted exactly.
  OpeningSource(std::unique_ptr<PageGate>, const OpeningOptions&, std::string name,
                double event_cost_us);

  // Resolves a fault, and counts it if its page is armed. False if the page could not be opened:
  // whoever waits still does.
  bool resolve(const Fault&) noexcept;

 private:
  static constexpr std::size_t kExact = 64;  // windows from here on need no single steps
  static constexpr std::size_t kInstruction =
      32;                                        // pages that an x86 instruction can need (gather)
  static constexpr std::size_t kSystemCall = 4;  // pages that the kernel touches without a retry
  static constexpr std::size_t kCompany = 64;    // pages armed again together

  bool small() const noexcept { return window_ < kExact; }
  int track(const ArmRange&) noexcept;
  bool wait_for_step(ThreadState&, const Fault&, std::size_t& floor) noexcept;
  void open(ThreadState&, std::uintptr_t page, PageRecord&, bool write) noexcept;
  void shrink(ThreadState&, std::size_t floor) noexcept;
  void arm_again(const Opening&) noexcept;
  void flush_pending() noexcept;

  bool begin(pid_t tid) noexcept override;
  bool end(pid_t tid) noexcept override;

  const std::unique_ptr<PageGate> gate_;
  const std::uint64_t window_, seed_;
  const bool in_company_;
  SourceInfo info_;

  std::mutex callers_;  // arm, disarm and drain; may be held while allocating
  // Faults, steps and callers; holders neither allocate nor touch tracked memory. Guards what
  // follows, but for the slots of counters_, which are the callers'.
  std::mutex lock_;
  PageIndex pages_;
  TagCounters counters_;
  ThreadWindows threads_;
  Opening pending_[kCompany];  // left their window, still open
  std::size_t pending_count_ = 0;
  std::uint64_t pending_pages_ = 0;  // that they stand for
  std::uint64_t serial_ = 0;
  int not_armed_again_ = 0;  // a negative errno, since the last drain
  std::atomic<std::size_t> touched_{0};
  std::unique_ptr<SingleStep> single_step_;  // last: its handler uses all of the above
};

}  // namespace sentinel
