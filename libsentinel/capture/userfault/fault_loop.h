// One userfaultfd and one thread that answers its faults, for the whole arena. Counting hangs on
// its MINOR faults (a memfd page that is in the page cache, but not in the page table), the
// execution engine's guard on its MISSING faults (no page at all).
//
// Conditions that hold for everything here:
// - Addresses and lengths are multiples of the page size, except Fault::address, which is exact
//   where the kernel offers that and a page's start elsewhere.
// - Functions that are noexcept return 0 or a negative errno, may be called from any thread and
//   allocate nothing. "Loop thread" is the one that runs the fault handlers.
// - Kernel-mode accesses (read(2) into a registered page, O_DIRECT, process_vm_readv) raise faults
//   like any other; a process that may only handle user-mode faults is refused at open().
// - The object, the handlers and what they touch must lie in memory that is never registered.
// - A program may close any descriptor. The kernel drops the guard with the last reference, and
// what
//   is missing would read as zeros: a thread that does nothing else keeps one where no other thread
//   can close it. The program's next fault then finds the loop unable to answer, and is never over.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

struct uffd_msg;

#include "base/descriptor.h"
#include "capture/userfault/uffd_open.h"

namespace sentinel {

struct UffdHandle;
class UffdCalls;

struct Fault {
  std::uintptr_t address = 0;
  pid_t tid = 0;  // the faulting thread
  bool write = false;
  bool minor = false;    // MINOR fault; otherwise MISSING, or
  bool protect = false;  // a write to what copy_protected() filled; goes to the missing handler
  bool barred = false;   // any access to what bar() has barred
};

// Runs on the loop thread. Must resolve the fault (cont, copy, move) or make sure that somebody
// soon does; the faulting thread sleeps until then. A fault may be reported again after it has been
// resolved, and after replace_mapping() a fault of the old mapping may still arrive: resolving it
// finds the page present, which cont() and copy() take for success. Must not allocate, log, touch
// registered memory, or take a lock that a faulting thread may hold.
using FaultHandler = void (*)(void* context, const Fault&) noexcept;

struct FaultLoopOptions {
  bool keeper = true;                            // false: hide_descriptors() follows
  UffdBackend backend = UffdBackend::automatic;  // device first, where it may be opened
  std::uint64_t features = ~std::uint64_t{0};    // UFFD_FEATURE_* to use, of those known here
};

class FaultLoop {
 public:
  using Backend = UffdBackend;
  enum class Wake : std::uint8_t { yes, no };

  // Starts the loop thread. Throws Error, which says what to do, where kernel-mode faults may not
  // be handled or the kernel lacks what every use needs (THREAD_ID, MISSING_SHMEM).
  static std::unique_ptr<FaultLoop> open(const FaultLoopOptions& = {});

  ~FaultLoop();
  // Stops the thread and closes the descriptor, which unregisters every range. For whoever has the
  // loop in a pointer that handlers read: the pointer must outlast the thread.
  void end() noexcept;
  FaultLoop(const FaultLoop&) = delete;
  FaultLoop& operator=(const FaultLoop&) = delete;

  bool can_move() const noexcept;     // UFFDIO_MOVE: Linux 6.8
  bool can_count() const noexcept;    // MINOR faults on shared memory: Linux 5.14
  bool can_replace() const noexcept;  // EVENT_REMAP
  bool can_protect() const noexcept;  // write protection of anonymous memory: Linux 5.7
  bool can_bar() const noexcept;      // read-write protection: after Linux 7.2 (uffd_abi.h)

  // A null handler resolves faults as though the range were not registered: the cached page is
  // mapped, a missing one is zero-filled, a barred one is unbarred. When these return, the old
  // handler no longer runs. Not to be called from a handler.
  void set_missing_handler(FaultHandler, void* context) noexcept;
  void set_minor_handler(FaultHandler, void* context) noexcept;
  void set_barred_handler(FaultHandler, void* context) noexcept;

  // Runs when faults can be answered no more: the program has closed the descriptor. On the loop
  // thread, or on one that asks the kernel for something. Set once, before a range is registered.
  void set_lost_handler(void (*run)(void* context) noexcept, void* context) noexcept;

  int register_range(std::uintptr_t address, std::size_t length, bool missing, bool minor,
                     bool protect = false) noexcept;
  // For bar() and, if asked, MISSING faults. It stays so until the range is unregistered, which
  // unbars its pages; it cannot be registered with `protect`.
  int register_for_bars(std::uintptr_t address, std::size_t length, bool missing) noexcept;
  int unregister_range(std::uintptr_t address,
                       std::size_t length) noexcept;  // wakes who waits there

  // Maps the cached pages of a MINOR range. Pages that are mapped already are skipped; -EFAULT
  // where the cache has no page.
  int cont(std::uintptr_t address, std::size_t length, Wake = Wake::yes) noexcept;
  // The same, but content with less: the first page, and those after it up to the first that is
  // mapped, has no page in the cache or belongs to another mapping. One call into the kernel.
  int cont_around(std::uintptr_t address, std::size_t length) noexcept;
  // The same where a look is all it is worth: wakes nobody, nothing at all where it cannot be.
  void cont_unless_mapped(std::uintptr_t address, std::size_t length) noexcept;
  // Fills absent pages. -EEXIST pages are skipped: they have their contents already.
  int copy(std::uintptr_t to, std::uintptr_t from, std::size_t length, Wake = Wake::yes) noexcept;
  // The same for memory that may be read, but whose first write is a fault. The range has to be
  // registered with `protect`. What unmaps the pages (madvise) ends the protection.
  int copy_protected(std::uintptr_t to, std::uintptr_t from, std::size_t length) noexcept;
  // Zero-fills absent pages; -EEXIST ones are skipped.
  int zero(std::uintptr_t address, std::size_t length, Wake = Wake::yes) noexcept;
  // Moves private anonymous pages (UFFDIO_MOVE) without copying; both ranges' faults must belong to
  // this loop or `from` be plain anonymous memory. On failure (-EBUSY: a page is pinned or shared
  // with a child; -EEXIST: `to` has a page; -ENOENT: `from` lacks one) *moved tells how many
  // leading bytes have arrived; a partial move is a normal result.
  int move(std::uintptr_t to, std::uintptr_t from, std::size_t length, std::size_t* moved = nullptr,
           Wake = Wake::yes) noexcept;
  // Every access to pages that are present is a fault from then on, contents unchanged; absent ones
  // are left alone. All of the range or nothing. A page that move() brings into a range registered
  // for it is barred, too. -ENOENT: part of it is not registered for bars, or not mapped.
  int bar(std::uintptr_t address, std::size_t length) noexcept;
  int unbar(std::uintptr_t address, std::size_t length, Wake = Wake::yes) noexcept;
  int wake(std::uintptr_t address, std::size_t length) noexcept;

  // Atomically puts the mapping at `prepared` (one VMA, registered with this loop in the modes
  // wanted) in the place of whatever is mapped at `address`, which is unmapped; other threads may
  // use the range all along, finding either the old or the new contents. The new mapping keeps its
  // pages, its registration and its flags; whoever waits for a fault of the old one tries again.
  // This is the switch between counting and moving. Blocks until the loop thread has read the
  // kernel's notice: never call it from a handler (-EDEADLK).
  int replace_mapping(std::uintptr_t address, std::size_t length, std::uintptr_t prepared) noexcept;

  // Gives the loop thread a table of descriptors of its own, which holds this loop's two and
  // nothing else: no other thread can close them, and the loop keeps no pipe of the program's open.
  // From then on the loop thread alone may work on ranges. Linux 5.9; for a forked child, whose
  // program may close whatever it inherited.
  int hide_descriptors() noexcept;

  // In a forked child: closes the descriptors and forgets the thread, which the child lacks. The
  // child's copies of registered ranges raise no faults. The object can then be destroyed or
  // leaked.
  void abandon_in_child() noexcept;

  std::uint64_t faults() const noexcept { return faults_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kBatch = 32;       // messages read at once
  static constexpr std::size_t kDeferred = 1024;  // threads that may wait during one remap
  struct Callback {
    FaultHandler run = nullptr;
    void* context = nullptr;
  };

  FaultLoop(const UffdHandle&, bool keeper);
  void run() noexcept;
  int ask(unsigned long request, void* argument) noexcept;
  int copy_in_mode(std::uintptr_t to, std::uintptr_t from, std::size_t length,
                   std::uint64_t mode) noexcept;
  std::size_t read_messages(uffd_msg* batch) noexcept;
  void defer(const uffd_msg&) noexcept;
  void answer(const uffd_msg&) noexcept;
  void resolve_plainly(const Fault&) noexcept;
  bool let_pass() noexcept;
  bool signal_loop() noexcept;
  void keep() noexcept;
  bool goes_on() noexcept;
  void lost() noexcept;
  bool on_loop_thread() const noexcept;

  static constexpr int kHide = 1, kNoWish = 2;  // else what hiding answered: 0 or less

  UffdCalls& calls_;
  OurFile uffd_, event_;  // the event: a wish, or else the end
  bool hidden_ = false;   // the descriptors are the loop thread's alone
  std::atomic<int> wish_ = kNoWish;
  std::uint64_t features_ = 0;
  // Faults read while waiting for a remap's notice in the midst of answering one; loop thread only.
  std::unique_ptr<uffd_msg[]> deferred_;
  std::size_t deferred_count_ = 0;
  std::atomic<std::uint64_t> faults_{0};
  std::mutex callbacks_lock_;  // held while a handler runs
  Callback missing_, minor_, barred_;
  void* lost_context_ = nullptr;
  std::atomic<void (*)(void*) noexcept> lost_ = nullptr;
  enum class Kept { not_yet, yes, no_longer };
  std::atomic<Kept> kept_ = Kept::not_yet;  // the descriptor, by the keeper
  std::thread thread_, keeper_;
};

}  // namespace sentinel
