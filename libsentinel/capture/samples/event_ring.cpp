// Opens the sampling events of a thread or a processor, and maps the ring that they share.
#include "capture/samples/event_ring.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "sentinel/error.h"

namespace sentinel {
namespace {

// 32768 samples; less where the kernel will not lock as much for one user.
constexpr std::size_t kMostBytes = std::size_t{1} << 20, kLeastBytes = std::size_t{1} << 15;

}  // namespace

// Delegates, so that what was opened is closed where an Error is thrown.
EventRing::EventRing(const SampleEvents& events, pid_t thread, int processor) : EventRing(thread) {
  open_all(events, processor);
  map();
}

EventRing::~EventRing() {
  if (mapping_ != nullptr) munmap(mapping_, SampleRing::kHeader + bytes_);
  for (OurFile& event : opened_) event.close();
}

EventRing::EventRing(EventRing&& other) noexcept : EventRing(other.thread_) {
  *this = std::move(other);
}

EventRing& EventRing::operator=(EventRing&& other) noexcept {
  std::swap(thread_, other.thread_);
  std::swap(opened_, other.opened_);
  std::swap(sampling_, other.sampling_);
  std::swap(mapping_, other.mapping_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

int EventRing::open(const perf_event_attr& attr, int processor, int leader) {
  perf_event_attr copy = attr;
  opened_.reserve(opened_.size() + 1);
  const auto event = out_of_reach(static_cast<int>(
      syscall(SYS_perf_event_open, &copy, thread_, processor, leader, PERF_FLAG_FD_CLOEXEC)));
  if (event < 0) throw Error("opening a sampling event", errno);
  opened_.emplace_back(event);
  return event;
}

void EventRing::open_all(const SampleEvents& events, int processor) {
  for (const SampleEvent& event : events.events) {
    const int leader = event.leader ? open(*event.leader, processor, -1) : -1;
    sampling_.push_back(open(event.attr, processor, leader));
  }
}

void EventRing::map() {
  void* at = MAP_FAILED;
  for (bytes_ = 2 * kMostBytes; at == MAP_FAILED && bytes_ > kLeastBytes;) {
    bytes_ /= 2;
    at = mmap(nullptr, SampleRing::kHeader + bytes_, PROT_READ | PROT_WRITE, MAP_SHARED,
              sampling_.front(), 0);
  }
  // EPERM is the limit of locked memory, too.
  if (at == MAP_FAILED) throw Error("mapping a ring of samples", errno == EPERM ? ENOMEM : errno);
  mapping_ = at;
  for (const int event : sampling_)
    if (event != sampling_.front() &&
        ioctl(event, PERF_EVENT_IOC_SET_OUTPUT, sampling_.front()) != 0)
      throw Error("sharing a ring of samples", errno);
}

}  // namespace sentinel
