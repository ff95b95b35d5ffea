// A kernel whose userfaultfd has read-write protection, as published (uffd_abi.h), on one that has
// only UFFDIO_MOVE. A barred page is moved aside, so its touch is a MISSING fault, which is told as
// that of a barred page. All else is real: the memory, the faults, who waits for them and how, and
// accesses in kernel mode.
//
// Not as there: a page that is dropped or unmapped while it is barred comes back; moving aside
// takes its time, in which a touch may go unseen.
#pragma once

#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "capture/userfault/uffd_abi.h"
#include "capture/userfault/uffd_calls.h"
#include "capture/userfault/uffd_open.h"
#include "sentinel/error.h"

namespace sentinel {

class FakeRwp final : public UffdCalls {
 public:
  // Why there can be none here; empty: there can.
  static std::string absent() {
    const UffdProbe probe = probe_userfaultfd();
    if (probe.device_error != 0 && probe.syscall_error != 0) return explain_refusal(probe).reason;
    return (probe.features & UFFD_FEATURE_MOVE) != 0 ? "" : "this kernel has no UFFDIO_MOVE";
  }

  explicit FakeRwp(bool has_it = true) : has_it_(has_it) {
    static const int once = pthread_atfork(&before_fork, &after_in_parent, &after_in_child);
    static_cast<void>(once);
    latest = this;
  }
  ~FakeRwp() override {
    latest = nullptr;
    for (const Area& area : areas_) munmap(pointer(area.aside), area.bytes);
  }

  // Whoever had registered areas has closed its descriptor, of which no call tells.
  void closed() {
    const std::lock_guard hold(lock_);
    forget([](const Area&) { return true; });
  }

  // Calls of this kind, from the one after the next `pass` on, fail so often.
  void fail(unsigned long request, int error, unsigned pass = 0, unsigned times = 1) {
    const std::lock_guard hold(lock_);
    failures_.push_back({request, error, pass, times});
  }
  void fail_no_more() {
    const std::lock_guard hold(lock_);
    failures_.clear();
  }
  std::size_t barred_pages() {
    const std::lock_guard hold(lock_);
    std::size_t pages = 0;
    for (const Area& area : areas_)
      for_present(area.aside, area.bytes, [&](std::uintptr_t) { ++pages; });
    return pages;
  }

  int control(int fd, unsigned long request, void* argument) noexcept override {
    const std::lock_guard hold(lock_);
    if (const int error = failure(request); error != 0) return refuse(error);
    switch (request) {
      case UFFDIO_API:
        return shake_hands(fd, *static_cast<uffdio_api*>(argument));
      case UFFDIO_REGISTER:
        return enter(fd, *static_cast<uffdio_register*>(argument));
      case UFFDIO_UNREGISTER:
        leave(*static_cast<uffdio_range*>(argument));
        break;
      case UFFDIO_RWPROTECT:
        return protect(fd, *static_cast<uffdio_rwprotect*>(argument));
      case UFFDIO_MOVE:
        return move(fd, *static_cast<uffdio_move*>(argument));
      case UFFDIO_ZEROPAGE: {
        auto& zero = *static_cast<uffdio_zeropage*>(argument);
        if (is_barred(zero.range.start)) return exists(zero.zeropage);
        break;
      }
      case UFFDIO_COPY: {
        auto& copy = *static_cast<uffdio_copy*>(argument);
        if (is_barred(copy.dst)) return exists(copy.copy);
        break;
      }
      default:
        break;
    }
    return ioctl(fd, request, argument);
  }

  ssize_t read(int fd, uffd_msg* messages, std::size_t bytes) noexcept override {
    const ssize_t got = ::read(fd, messages, bytes);
    if (got <= 0) return got;
    const std::lock_guard hold(lock_);
    std::size_t kept = 0;
    const std::size_t count = static_cast<std::size_t>(got) / sizeof(uffd_msg);
    for (std::size_t i = 0; i < count; ++i)
      if (tells(fd, messages[i])) messages[kept++] = messages[i];
    if (kept != 0) return static_cast<ssize_t>(kept * sizeof(uffd_msg));
    return refuse(EAGAIN);
  }

 private:
  static constexpr std::uintptr_t kPage = 4096;
  struct Area {
    int fd;
    std::uintptr_t begin;
    std::size_t bytes;
    std::uintptr_t aside;  // where its barred pages are
    bool missing;
    bool has(std::uintptr_t address) const { return address - begin < bytes; }
  };
  struct Failure {
    unsigned long request;
    int error;
    unsigned pass, times;
  };

  static void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
  static int refuse(int error) {
    errno = error;
    return -1;
  }
  static int exists(__s64& field) {
    field = -EEXIST;
    return refuse(EEXIST);
  }

  int failure(unsigned long request) {
    for (Failure& failure : failures_) {
      if (failure.request != request || failure.times == 0) continue;
      if (failure.pass > 0) {
        --failure.pass;
        continue;
      }
      --failure.times;
      return failure.error;
    }
    return 0;
  }

  // Calls visit(page) for each page of the range that is in the page table. Of a few pages it
  // allocates nothing: a handler of signals opens them.
  template <class Visit>
  static void for_present(std::uintptr_t begin, std::size_t bytes, Visit visit) {
    constexpr std::size_t kAtOnce = std::size_t{1} << 20;  // pages
    unsigned char few[1024];
    const bool is_few = bytes / kPage <= sizeof few;
    std::vector<unsigned char> many(is_few ? 0 : std::min(kAtOnce, bytes / kPage));
    unsigned char* const present = is_few ? few : many.data();
    for (std::size_t done = 0; done < bytes; done += kAtOnce * kPage) {
      const std::size_t pages = std::min(kAtOnce, (bytes - done) / kPage);
      if (mincore(pointer(begin + done), pages * kPage, present) != 0) return;
      for (std::size_t i = 0; i < pages; ++i)
        if ((present[i] & 1) != 0) visit(begin + done + i * kPage);
    }
  }

  Area* area_of(std::uintptr_t address) {
    for (Area& area : areas_)
      if (area.has(address)) return &area;
    return nullptr;
  }
  bool is_barred(std::uintptr_t address) {
    const Area* area = area_of(address);
    bool barred = false;
    if (area != nullptr)
      for_present(area->aside + (address & ~(kPage - 1)) - area->begin, kPage,
                  [&](std::uintptr_t) { barred = true; });
    return barred;
  }

  // One page, waking nobody. A page shared with a child is made its own first.
  static int move_page(int fd, std::uintptr_t to, std::uintptr_t from) {
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
    for (int attempt = 0; attempt < 100; ++attempt) {
      uffdio_move request{
          .dst = to, .src = from, .len = kPage, .mode = UFFDIO_MOVE_MODE_DONTWAKE, .move = 0};
      if (ioctl(fd, UFFDIO_MOVE, &request) == 0) return 0;
      if (errno != EBUSY && errno != EAGAIN) return errno;
      if (errno == EBUSY) madvise(pointer(from), kPage, kPopulateWrite);
    }
    return EBUSY;
  }

  int shake_hands(int fd, uffdio_api& api) {
    const bool asked = (api.features & UFFD_FEATURE_RWP) != 0;
    if (asked && !has_it_) return refuse(EINVAL);
    api.features &= ~std::uint64_t{UFFD_FEATURE_RWP};
    const int code = ioctl(fd, UFFDIO_API, &api);
    if (code == 0 && has_it_) api.features |= UFFD_FEATURE_RWP;
    return code;
  }

  int enter(int fd, uffdio_register& request) {
    const bool bars = (request.mode & UFFDIO_REGISTER_MODE_RWP) != 0;
    if (bars && (!has_it_ || (request.mode & UFFDIO_REGISTER_MODE_WP) != 0)) return refuse(EINVAL);
    const Area* known = area_of(request.range.start);
    if (known != nullptr && known->fd == fd && !bars) return refuse(EBUSY);
    if (!bars || known != nullptr) return ioctl(fd, UFFDIO_REGISTER, &request);
    const bool missing = (request.mode & UFFDIO_REGISTER_MODE_MISSING) != 0;
    auto real = request;
    real.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (ioctl(fd, UFFDIO_REGISTER, &real) != 0) return -1;
    void* const at = mmap(nullptr, request.range.len, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return -1;
    uffdio_register aside{};
    aside.range = {reinterpret_cast<std::uintptr_t>(at), request.range.len};
    aside.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (ioctl(fd, UFFDIO_REGISTER, &aside) != 0) return -1;
    areas_.push_back({fd, request.range.start, request.range.len, aside.range.start, missing});
    return 0;
  }

  void leave(const uffdio_range& range) {
    for (auto area = areas_.begin(); area != areas_.end();) {
      if (area->begin - range.start >= range.len) {
        ++area;
        continue;
      }
      bring_back(*area, area->begin, area->bytes);
      munmap(pointer(area->aside), area->bytes);
      area = areas_.erase(area);
    }
  }

  // Another mapping has come in an area's place, which is not registered for bars.
  void replaced(std::uintptr_t begin, std::size_t bytes) {
    forget([&](const Area& area) { return area.begin - begin < bytes; });
  }

  template <class Which>
  void forget(const Which& which) {
    areas_.remove_if([&](const Area& area) {
      if (!which(area)) return false;
      munmap(pointer(area.aside), area.bytes);
      return true;
    });
  }

  static int move_aside(const Area& area, std::uintptr_t begin, std::size_t bytes) {
    int error = 0;
    for_present(begin, bytes, [&](std::uintptr_t page) {
      const int code = move_page(area.fd, area.aside + page - area.begin, page);
      if (error == 0) error = code;
    });
    return error;
  }
  static void bring_back(const Area& area, std::uintptr_t begin, std::size_t bytes) {
    for_present(area.aside + begin - area.begin, bytes, [&](std::uintptr_t page) {
      move_page(area.fd, area.begin + page - area.aside, page);
    });
  }

  int protect(int fd, const uffdio_rwprotect& request) {
    const auto [begin, bytes] = request.range;
    const bool bars = (request.mode & UFFDIO_RWPROTECT_MODE_RWP) != 0,
               sleeps = (request.mode & UFFDIO_RWPROTECT_MODE_DONTWAKE) != 0;
    if (begin % kPage != 0 || bytes % kPage != 0 || bytes == 0 || (bars && sleeps) || !has_it_)
      return refuse(EINVAL);
    const Area* area = area_of(begin);
    if (area == nullptr || area->fd != fd || !area->has(begin + bytes - 1)) return refuse(ENOENT);
    if (bars) {
      const int error = move_aside(*area, begin, bytes);
      return error == 0 ? 0 : refuse(error == EBUSY ? EAGAIN : error);
    }
    bring_back(*area, begin, bytes);
    return sleeps ? 0 : wake(fd, begin, bytes);
  }

  static int wake(int fd, std::uintptr_t begin, std::size_t bytes) {
    uffdio_range range{begin, bytes};
    return ioctl(fd, UFFDIO_WAKE, &range);
  }

  // What comes into an area is barred; what leaves one is not.
  int move(int fd, uffdio_move& request) {
    if (const Area* from = area_of(request.src)) bring_back(*from, request.src, request.len);
    const Area* to = area_of(request.dst);
    if (to == nullptr) return ioctl(fd, UFFDIO_MOVE, &request);
    auto real = request;
    real.dst = to->aside + request.dst - to->begin;
    real.mode |= UFFDIO_MOVE_MODE_DONTWAKE;
    const int code = ioctl(fd, UFFDIO_MOVE, &real);
    const int error = errno;
    request.move = real.move;
    if ((request.mode & UFFDIO_MOVE_MODE_DONTWAKE) == 0 && real.move > 0)
      wake(fd, request.dst, static_cast<std::size_t>(real.move));
    errno = error;
    return code;
  }

  // Whether the loop hears of it: a page that is made where nobody asked for MISSING faults is none
  // of its business.
  bool tells(int fd, uffd_msg& message) {
    if (message.event == UFFD_EVENT_REMAP) replaced(message.arg.remap.to, message.arg.remap.len);
    if (message.event != UFFD_EVENT_PAGEFAULT) return true;
    const std::uintptr_t address = message.arg.pagefault.address;
    const Area* area = area_of(address);
    if (area == nullptr || area->fd != fd) return true;
    if (is_barred(address)) {
      message.arg.pagefault.flags |= UFFD_PAGEFAULT_FLAG_RWP;
      return true;
    }
    if (area->missing) return true;
    uffdio_zeropage zero{};
    zero.range = {address & ~(kPage - 1), kPage};
    if (ioctl(fd, UFFDIO_ZEROPAGE, &zero) != 0) wake(fd, zero.range.start, kPage);
    return false;
  }

  // A child has a copy of what is barred, which is not barred there.
  static void before_fork() {
    FakeRwp* const fake = latest;
    if (fake == nullptr) return;
    fake->lock_.lock();
    for (const Area& area : fake->areas_)
      for_present(area.aside, area.bytes, [&](std::uintptr_t page) {
        fake->at_fork_.push_back(area.begin + page - area.aside);
      });
    for (const Area& area : fake->areas_) bring_back(area, area.begin, area.bytes);
  }
  static void after_in_parent() {
    FakeRwp* const fake = latest;
    if (fake == nullptr) return;
    for (const std::uintptr_t page : fake->at_fork_)
      if (const Area* area = fake->area_of(page)) move_aside(*area, page, kPage);
    fake->at_fork_.clear();
    fake->lock_.unlock();
  }
  static void after_in_child() {
    FakeRwp* const fake = latest;
    if (fake == nullptr) return;
    fake->areas_.clear();
    fake->at_fork_.clear();
    fake->lock_.unlock();
  }

  static inline std::atomic<FakeRwp*> latest = nullptr;
  const bool has_it_;
  std::mutex lock_;  // guards all below
  std::list<Area> areas_;
  std::vector<Failure> failures_;
  std::vector<std::uintptr_t> at_fork_;
};

}  // namespace sentinel
