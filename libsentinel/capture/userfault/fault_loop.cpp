// Reads faults from one userfaultfd in a thread, and has the arena's owner answer each.
#include "capture/userfault/fault_loop.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <initializer_list>
#include <limits>

#include "base/descriptor.h"
#include "base/quiet_thread.h"
#include "capture/userfault/uffd_abi.h"
#include "capture/userfault/uffd_calls.h"
#include "capture/userfault/uffd_open.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kPage = 4096;
constexpr unsigned kUnshareTable = 2;  // CLOSE_RANGE_UNSHARE
thread_local const FaultLoop* runs_on_this_thread = nullptr;

// The ioctls that fill pages share one life: they report the bytes done or a negative errno in a
// field of their own, stop at the first present page, and answer EAGAIN while a remap's notice is
// unread. `call(offset, length)` issues one; `again()` says whether to try on.
struct Filled {
  int error = 0;
  std::size_t done = 0;
  bool skipped = false;
};

template <class Call, class Again>
Filled fill(std::size_t length, bool skip_present, Call call, Again again) noexcept {
  Filled filled;
  while (filled.done < length) {
    const std::int64_t result = call(filled.done, length - filled.done);
    if (result > 0) {
      filled.done += static_cast<std::size_t>(result);
    } else if (result == -EEXIST && skip_present) {
      filled.done += kPage;
      filled.skipped = true;
    } else if ((result != -EAGAIN && result != -EINTR) || !again()) {
      filled.error = static_cast<int>(result);
      break;
    }
  }
  return filled;
}

// The same for a call that does all of a range or nothing. Another thread than the loop's may hold
// a lock that the loop thread waits for before it reads the notice: it gives up in the end.
template <class Call, class Pass>
int insist(Call call, bool on_loop_thread, Pass let_pass) noexcept {
  for (int patience = 1000; call() != 0;) {
    const int code = errno;
    if (code != EAGAIN && code != EINTR) return -code;
    if (!on_loop_thread && --patience == 0) return -code;
    let_pass();
  }
  return 0;
}

// The field is only valid where the ioctl succeeded or made partial progress.
std::int64_t outcome(int rc, std::int64_t field) noexcept {
  return rc == 0 || field > 0 ? field : -errno;
}

// The calling thread's table of descriptors is its own from then on, and holds these alone: no
// other thread can close them, and none of the program's stays open for it. close_range() may be
// permitted where unshare() is not: in a container.
int keep_only(std::initializer_list<int> kept) noexcept {
  std::array<int, 2> sorted{-1, -1};
  std::ranges::copy(kept, sorted.end() - kept.size());
  std::ranges::sort(sorted);
  unsigned flags = kUnshareTable;
  int last = std::numeric_limits<int>::max();
  for (auto at = sorted.rbegin(); last >= 0; ++at) {
    const int first = at == sorted.rend() ? 0 : *at + 1;
    if (first <= last && syscall(SYS_close_range, first, last, flags) != 0) return -errno;
    if (first <= last) flags = 0;
    if (at == sorted.rend()) break;
    last = *at - 1;
  }
  return 0;
}

}  // namespace

std::unique_ptr<FaultLoop> FaultLoop::open(const FaultLoopOptions& options) {
  const UffdHandle handle = open_userfaultfd(options.backend, options.features);
  return std::unique_ptr<FaultLoop>(new FaultLoop(handle, options.keeper));
}

FaultLoop::FaultLoop(const UffdHandle& handle, bool keeper)
    : calls_(uffd_calls()),
      uffd_(out_of_reach(handle.fd)),
      event_(out_of_reach(eventfd(0, EFD_CLOEXEC))),
      features_(handle.features),
      deferred_(std::make_unique<uffd_msg[]>(kDeferred)) {
  if (!event_.is_open()) {
    const int code = errno;
    uffd_.close();
    throw Error("creating the fault loop's eventfd", code);
  }
  // The loop thread must never run a signal handler: it might touch registered memory.
  thread_ = quiet_thread([this] { run(); });
  if (!keeper) return;
  keeper_ = quiet_thread([this] { keep(); });
  kept_.wait(Kept::not_yet);
}

FaultLoop::~FaultLoop() { end(); }

void FaultLoop::end() noexcept {
  if (!uffd_.is_open() || !thread_.joinable()) return;  // abandoned, or over
  if (hidden_) {                                        // nobody else can end it
    thread_.detach();
    return;
  }
  if (!signal_loop()) lost();
  thread_.join();
  if (keeper_.joinable()) {
    kept_ = Kept::no_longer;
    kept_.notify_all();
    keeper_.join();
  }
  uffd_.close();
  event_.close();
}

void FaultLoop::keep() noexcept {
  pthread_setname_np(pthread_self(), "sentinel-keeper");
  keep_only({uffd_.number()});
  kept_ = Kept::yes;
  kept_.notify_all();
  kept_.wait(Kept::yes);
}

void FaultLoop::set_lost_handler(void (*run)(void*) noexcept, void* context) noexcept {
  lost_context_ = context;
  lost_ = run;
}

// Maybe in the midst of a handler, with its lock.
void FaultLoop::lost() noexcept {
  if (const auto run = lost_.load()) run(lost_context_);
}

// False: the program has closed the event.
bool FaultLoop::signal_loop() noexcept {
  const std::uint64_t one = 1;
  while (event_.is_ours()) {
    if (write(event_.number(), &one, sizeof one) > 0) return true;
    if (errno != EINTR) return false;
  }
  return false;
}

int FaultLoop::hide_descriptors() noexcept {
  wish_ = kHide;
  if (!signal_loop()) return -EBADF;
  wish_.wait(kHide);
  const int code = wish_;
  if (code != 0) return code;
  for (OurFile file : {uffd_, event_}) file.close();  // the loop thread goes on with their numbers
  hidden_ = true;
  return 0;
}

void FaultLoop::abandon_in_child() noexcept {
  if (!uffd_.is_open()) return;
  if (!hidden_) {
    uffd_.close();
    event_.close();
  }
  uffd_ = event_ = {};
  thread_.detach();
  if (keeper_.joinable()) keeper_.detach();
}

bool FaultLoop::can_move() const noexcept { return features_ & UFFD_FEATURE_MOVE; }
bool FaultLoop::can_count() const noexcept { return features_ & UFFD_FEATURE_MINOR_SHMEM; }
bool FaultLoop::can_replace() const noexcept { return features_ & UFFD_FEATURE_EVENT_REMAP; }
bool FaultLoop::can_protect() const noexcept { return features_ & UFFD_FEATURE_PAGEFAULT_FLAG_WP; }
bool FaultLoop::can_bar() const noexcept { return features_ & UFFD_FEATURE_RWP; }

void FaultLoop::set_missing_handler(FaultHandler run, void* context) noexcept {
  const std::lock_guard hold(callbacks_lock_);
  missing_ = {run, context};
}

void FaultLoop::set_minor_handler(FaultHandler run, void* context) noexcept {
  const std::lock_guard hold(callbacks_lock_);
  minor_ = {run, context};
}

void FaultLoop::set_barred_handler(FaultHandler run, void* context) noexcept {
  const std::lock_guard hold(callbacks_lock_);
  barred_ = {run, context};
}

// --- the loop thread

void FaultLoop::run() noexcept {
  pthread_setname_np(pthread_self(), "sentinel-fault");
  runs_on_this_thread = this;
  // Whoever it wakes should not take its processor while others wait. Where that is not permitted,
  // they wait a little longer.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -20);
  pollfd wait[2] = {{uffd_.number(), POLLIN, 0}, {event_.number(), POLLIN, 0}};
  uffd_msg batch[kBatch];
  for (;;) {
    if (poll(wait, 2, -1) < 0) continue;
    if (!uffd_.is_ours()) return lost();
    if (wait[0].revents & POLLIN) {
      const std::size_t got = read_messages(batch);
      for (std::size_t i = 0; i < got; ++i) answer(batch[i]);
    }
    while (deferred_count_ > 0) {
      const uffd_msg message = deferred_[--deferred_count_];  // answering may defer more
      answer(message);
    }
    if (wait[0].revents & (POLLERR | POLLNVAL)) return lost();
    if (wait[1].revents != 0 && !goes_on()) return;
  }
}

// The event has been raised: for a wish, or to end the loop.
bool FaultLoop::goes_on() noexcept {
  std::uint64_t raised = 0;
  if (!event_.is_ours() || read(event_.number(), &raised, sizeof raised) < 0) {
    lost();
    return false;
  }
  if (wish_ != kHide) return false;
  wish_ = keep_only({uffd_.number(), event_.number()});
  wish_.notify_all();
  return true;
}

std::size_t FaultLoop::read_messages(uffd_msg* batch) noexcept {
  const ssize_t bytes = calls_.read(uffd_.number(), batch, kBatch * sizeof(uffd_msg));
  if (bytes < 0 && errno == EBADF) lost();
  return bytes <= 0 ? 0 : static_cast<std::size_t>(bytes) / sizeof(uffd_msg);
}

// A thread has one fault at a time: a later one of the same thread means that the earlier is over.
// Where even so there is no room the thread is woken, and faults again.
void FaultLoop::defer(const uffd_msg& message) noexcept {
  if (message.event != UFFD_EVENT_PAGEFAULT) return;
  uffd_msg* const end = &deferred_[deferred_count_];
  uffd_msg* const same = std::find_if(&deferred_[0], end, [&](const uffd_msg& other) {
    return other.arg.pagefault.feat.ptid == message.arg.pagefault.feat.ptid;
  });
  if (same != end) {
    *same = message;
  } else if (deferred_count_ < kDeferred) {
    deferred_[deferred_count_++] = message;
  } else {
    wake(message.arg.pagefault.address & ~(kPage - 1), kPage);
  }
}

void FaultLoop::answer(const uffd_msg& message) noexcept {
  // A remap's notice needs no answer beyond having been read.
  if (message.event != UFFD_EVENT_PAGEFAULT) return;
  faults_.fetch_add(1, std::memory_order_relaxed);
  const auto& fault = message.arg.pagefault;
  const Fault told{fault.address,
                   static_cast<pid_t>(fault.feat.ptid),
                   (fault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0,
                   (fault.flags & UFFD_PAGEFAULT_FLAG_MINOR) != 0,
                   (fault.flags & UFFD_PAGEFAULT_FLAG_WP) != 0,
                   (fault.flags & UFFD_PAGEFAULT_FLAG_RWP) != 0};
  const std::lock_guard hold(callbacks_lock_);
  const Callback& callback = told.barred ? barred_ : told.minor ? minor_ : missing_;
  if (callback.run)
    callback.run(callback.context, told);
  else
    resolve_plainly(told);
}

void FaultLoop::resolve_plainly(const Fault& fault) noexcept {
  const std::uintptr_t page = fault.address & ~(kPage - 1);
  if (fault.barred) {
    if (unbar(page, kPage) != 0) wake(page, kPage);
    return;
  }
  if (fault.protect) {
    uffdio_writeprotect request{.range = {page, kPage}, .mode = 0};
    if (ask(UFFDIO_WRITEPROTECT, &request) != 0) wake(page, kPage);
    return;
  }
  const int rc = fault.minor ? cont(page, kPage) : zero(page, kPage);
  if (rc != 0) wake(page, kPage);  // unmapped meanwhile: let the access find out
}

bool FaultLoop::on_loop_thread() const noexcept { return runs_on_this_thread == this; }

// EAGAIN: a remap is under way, and goes on when its notice has been read. Reading is this thread's
// task; other threads wait for it.
bool FaultLoop::let_pass() noexcept {
  std::size_t got = 0;
  if (on_loop_thread()) {
    uffd_msg batch[kBatch];
    if (!uffd_.is_ours()) lost();
    got = read_messages(batch);
    for (std::size_t i = 0; i < got; ++i) defer(batch[i]);
  }
  if (got == 0) sched_yield();
  return true;
}

// --- what handlers and other threads do to ranges

// As ioctl(2). It gives other errors than these to whoever asks a number that the program has taken
// for a file of its own.
int FaultLoop::ask(unsigned long request, void* argument) noexcept {
  const int rc = calls_.control(uffd_.number(), request, argument);
  if (rc == 0 || errno == EAGAIN || errno == EEXIST || errno == EINTR || errno == ENOENT) return rc;
  const int code = errno;
  if ((on_loop_thread() || !hidden_) && !uffd_.is_ours()) lost();
  errno = code;
  return rc;
}

int FaultLoop::register_range(std::uintptr_t address, std::size_t length, bool missing, bool minor,
                              bool protect) noexcept {
  uffdio_register request{};
  request.range = {address, length};
  request.mode = (missing ? UFFDIO_REGISTER_MODE_MISSING : 0) |
                 (minor ? UFFDIO_REGISTER_MODE_MINOR : 0) | (protect ? UFFDIO_REGISTER_MODE_WP : 0);
  return ask(UFFDIO_REGISTER, &request) == 0 ? 0 : -errno;
}

int FaultLoop::register_for_bars(std::uintptr_t address, std::size_t length,
                                 bool missing) noexcept {
  if (!can_bar()) return -EOPNOTSUPP;
  uffdio_register request{};
  request.range = {address, length};
  request.mode = UFFDIO_REGISTER_MODE_RWP | (missing ? UFFDIO_REGISTER_MODE_MISSING : 0);
  return ask(UFFDIO_REGISTER, &request) == 0 ? 0 : -errno;
}

int FaultLoop::unregister_range(std::uintptr_t address, std::size_t length) noexcept {
  uffdio_range range{address, length};
  return ask(UFFDIO_UNREGISTER, &range) == 0 ? 0 : -errno;
}

int FaultLoop::wake(std::uintptr_t address, std::size_t length) noexcept {
  uffdio_range range{address, length};
  return ask(UFFDIO_WAKE, &range) == 0 ? 0 : -errno;
}

int FaultLoop::cont(std::uintptr_t address, std::size_t length, Wake waking) noexcept {
  const auto call = [&](std::size_t offset, std::size_t rest) {
    uffdio_continue request{};
    request.range = {address + offset, rest};
    request.mode = waking == Wake::no ? UFFDIO_CONTINUE_MODE_DONTWAKE : 0;
    const int rc = ask(UFFDIO_CONTINUE, &request);
    return outcome(rc, request.mapped);
  };
  const Filled filled = fill(length, true, call, [this] { return let_pass(); });
  if (filled.skipped && waking == Wake::yes) wake(address, length);  // EEXIST wakes nobody
  return filled.error;
}

int FaultLoop::cont_around(std::uintptr_t address, std::size_t length) noexcept {
  for (;;) {
    uffdio_continue request{};
    request.range = {address, length};
    const int rc = ask(UFFDIO_CONTINUE, &request);
    const std::int64_t result = outcome(rc, request.mapped);
    if (result > 0) return 0;
    if (result == -EEXIST) return wake(address, kPage);
    if (result == -EAGAIN || result == -EINTR)
      let_pass();
    else if (length > kPage)  // reaches beyond the mapping
      length = std::max<std::size_t>(kPage, length / 2 & ~(kPage - 1));
    else
      return static_cast<int>(result);
  }
}

void FaultLoop::cont_unless_mapped(std::uintptr_t address, std::size_t length) noexcept {
  uffdio_continue request{};
  request.range = {address, length};
  request.mode = UFFDIO_CONTINUE_MODE_DONTWAKE;
  ask(UFFDIO_CONTINUE, &request);
}

int FaultLoop::copy(std::uintptr_t to, std::uintptr_t from, std::size_t length,
                    Wake waking) noexcept {
  return copy_in_mode(to, from, length, waking == Wake::no ? UFFDIO_COPY_MODE_DONTWAKE : 0);
}

int FaultLoop::copy_protected(std::uintptr_t to, std::uintptr_t from, std::size_t length) noexcept {
  return copy_in_mode(to, from, length, UFFDIO_COPY_MODE_WP);
}

int FaultLoop::copy_in_mode(std::uintptr_t to, std::uintptr_t from, std::size_t length,
                            std::uint64_t mode) noexcept {
  const auto call = [&](std::size_t offset, std::size_t rest) {
    uffdio_copy request{};
    request.dst = to + offset;
    request.src = from + offset;
    request.len = rest;
    request.mode = mode;
    const int rc = ask(UFFDIO_COPY, &request);
    return outcome(rc, request.copy);
  };
  const Filled filled = fill(length, true, call, [this] { return let_pass(); });
  if (filled.skipped && (mode & UFFDIO_COPY_MODE_DONTWAKE) == 0) wake(to, length);
  return filled.error;
}

int FaultLoop::zero(std::uintptr_t address, std::size_t length, Wake waking) noexcept {
  const auto call = [&](std::size_t offset, std::size_t rest) {
    uffdio_zeropage request{};
    request.range = {address + offset, rest};
    request.mode = waking == Wake::no ? UFFDIO_ZEROPAGE_MODE_DONTWAKE : 0;
    const int rc = ask(UFFDIO_ZEROPAGE, &request);
    return outcome(rc, request.zeropage);
  };
  const Filled filled = fill(length, true, call, [this] { return let_pass(); });
  if (filled.skipped && waking == Wake::yes) wake(address, length);
  return filled.error;
}

int FaultLoop::move(std::uintptr_t to, std::uintptr_t from, std::size_t length, std::size_t* moved,
                    Wake waking) noexcept {
  const auto call = [&](std::size_t offset, std::size_t rest) {
    uffdio_move request{};
    request.dst = to + offset;
    request.src = from + offset;
    request.len = rest;
    request.mode = waking == Wake::no ? UFFDIO_MOVE_MODE_DONTWAKE : 0;
    const int rc = ask(UFFDIO_MOVE, &request);
    return outcome(rc, request.move);
  };
  // A page that somebody else holds for long answers EAGAIN for long: the caller has a copy.
  int patience = 1000;
  const Filled filled = fill(length, false, call, [&] { return --patience > 0 && let_pass(); });
  if (moved) *moved = filled.done;
  return filled.error;
}

int FaultLoop::bar(std::uintptr_t address, std::size_t length) noexcept {
  const auto call = [&] {
    uffdio_rwprotect request{.range = {address, length}, .mode = UFFDIO_RWPROTECT_MODE_RWP};
    return ask(UFFDIO_RWPROTECT, &request);
  };
  return insist(call, on_loop_thread(), [this] { return let_pass(); });
}

int FaultLoop::unbar(std::uintptr_t address, std::size_t length, Wake waking) noexcept {
  const auto call = [&] {
    uffdio_rwprotect request{.range = {address, length}, .mode = 0};
    if (waking == Wake::no) request.mode = UFFDIO_RWPROTECT_MODE_DONTWAKE;
    return ask(UFFDIO_RWPROTECT, &request);
  };
  return insist(call, on_loop_thread(), [this] { return let_pass(); });
}

int FaultLoop::replace_mapping(std::uintptr_t address, std::size_t length,
                               std::uintptr_t prepared) noexcept {
  if (on_loop_thread()) return -EDEADLK;
  if (!can_replace()) return -EOPNOTSUPP;  // the registration would be lost
  void* const at = mremap(reinterpret_cast<void*>(prepared), length, length,
                          MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(address));
  if (at == MAP_FAILED) return -errno;
  // Who waits for a fault of the old mapping would wait for ever: nobody else resolves it.
  return wake(address, length);
}

}  // namespace sentinel
