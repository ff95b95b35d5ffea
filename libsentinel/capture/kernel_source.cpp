// Calls /dev/sentinel: arms ranges by their tags, and reads the counts back.
#include "capture/kernel_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "capture/sampling.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr const char* kDevice = "/dev/sentinel";
constexpr std::size_t kPage = 4096;

sentinel_create wanted(std::uint32_t window, std::uint32_t counters, bool in_company) {
  return {.version = SENTINEL_ABI_VERSION,
          .flags = in_company ? SENTINEL_IN_COMPANY : 0,
          .window = window,
          .counters = counters};
}

}  // namespace

int KernelSource::probe() noexcept {
  const int file = open(kDevice, O_RDWR | O_CLOEXEC);
  if (file < 0) return -errno;
  auto create = wanted(1, 1, false);
  create.version = 0;  // tells the kernel's version, and creates nothing
  const int code = ioctl(file, SENTINEL_IOC_CREATE, &create) == 0 ? 0 : -errno;
  close(file);
  return code == -EPROTO && create.version == SENTINEL_ABI_VERSION ? 0 : code;
}

KernelSource::KernelSource(const Options& options)
    : seed_(options.seed), most_tags_(options.most_tags) {
  file_ = OurFile(out_of_reach(open(kDevice, O_RDWR | O_CLOEXEC)));
  if (!file_.is_open())
    throw Error(fmt::format("counting in the kernel: {} cannot be opened (kernel/README.md: the "
                            "patched kernel)",
                            kDevice),
                errno);
  auto create = wanted(std::clamp(options.window_pages, 1u, SENTINEL_MAX_WINDOW), options.most_tags,
                       options.in_company);
  void* at = MAP_FAILED;
  if (ioctl(file_.number(), SENTINEL_IOC_CREATE, &create) == 0 &&
      ioctl(file_.number(), SENTINEL_IOC_ARM) == 0)
    at = mmap(nullptr, create.map_bytes, PROT_READ, MAP_SHARED, file_.number(), 0);
  if (at == MAP_FAILED) {
    const int error = errno;
    file_.close();
    throw Error(error == EBUSY ? "counting in the kernel: this process is being counted already"
                               : "counting in the kernel: no session",
                error);
  }
  map_bytes_ = create.map_bytes;
  const auto* const bytes = static_cast<const char*>(at);
  status_ = reinterpret_cast<const sentinel_status*>(bytes);
  groups_ = reinterpret_cast<const __u64*>(bytes + create.groups_offset);
  counters_ = reinterpret_cast<const sentinel_counter*>(bytes + create.counters_offset);
  group_counters_ = create.group_counters;
  const bool small = options.window_pages < SENTINEL_STEP_WINDOW;
  info_ = {
      .name = options.device.empty() ? "kernel" : "kernel-" + options.device,
      .exact = options.device.empty() && (!small || (create.features & SENTINEL_FEATURE_STEP) != 0),
      .reads_writes_apart = (create.features & SENTINEL_FEATURE_WRITES) != 0,
      .page_bytes = kPage,
      .missed = options.in_company ? 1.0 / 32 : 0};  // half the sixteenth that waits for company
}

KernelSource::~KernelSource() {
  munmap(const_cast<sentinel_status*>(status_), map_bytes_);
  file_.close();
}

std::int64_t KernelSource::slot_of(std::uint32_t tag) {
  const auto known = slots_.find(tag);
  if (known != slots_.end()) return known->second;
  if (slots_.size() == most_tags_) return -ENOSPC;
  const auto slot = static_cast<std::uint32_t>(slots_.size());
  drained_.push_back({.tag = tag});
  group_totals_.resize(slot / group_counters_ + 1);
  slots_.emplace(tag, slot);
  return slot;
}

int KernelSource::append(const ArmRange& range) {
  if (!aligned(range)) return -EINVAL;
  if (range.bytes == 0) return 0;
  const auto slot = slot_of(range.tag);
  if (slot < 0) return static_cast<int>(slot);
  const auto add = [&](std::size_t page, std::size_t pages, std::uint32_t weight, bool even) {
    ranges_.push_back({.start = range.begin + page * kPage,
                       .length = pages * kPage,
                       .counter = static_cast<std::uint32_t>(slot),
                       .weight = weight,
                       .flags = even ? SENTINEL_RANGE_EVEN : 0});
  };
  const auto pages = range.bytes / kPage;
  if (range.stride == 1)
    add(0, pages, 1, false);
  else
    for_each_sampled(
        pages, range.stride, seed_ ^ range.begin,
        [&](std::size_t page, std::uint32_t weight, bool even) { add(page, 1, weight, even); });
  return 0;
}

// In calls of as many ranges as one may have.
int KernelSource::call(unsigned long request) noexcept {
  int first = 0;
  for (std::size_t done = 0; done < ranges_.size() && first == 0;) {
    sentinel_ranges part{.ranges = reinterpret_cast<std::uintptr_t>(&ranges_[done]),
                         .count = static_cast<std::uint32_t>(
                             std::min<std::size_t>(ranges_.size() - done, SENTINEL_MAX_RANGES))};
    if (ioctl(file_.number(), request, &part) != 0) first = -errno;
    done += part.count;
  }
  return first;
}

int KernelSource::arm(std::span<const ArmRange> ranges) noexcept try {
  const std::lock_guard hold(lock_);
  // What was armed between the sampled pages no longer is.
  ranges_.clear();
  for (const auto& range : ranges)
    if (range.stride > 1 && aligned(range) && range.bytes != 0)
      ranges_.push_back({.start = range.begin, .length = range.bytes});
  if (const int code = call(SENTINEL_IOC_UNTRACK); code != 0) return code;
  ranges_.clear();
  int first = 0;
  for (const auto& range : ranges) {
    const int code = append(range);
    if (first == 0) first = code;
  }
  const int code = call(SENTINEL_IOC_TRACK);
  return first != 0 ? first : code;
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

int KernelSource::disarm(std::span<const ArmRange> ranges) noexcept try {
  const std::lock_guard hold(lock_);
  ranges_.clear();
  for (const auto& range : ranges) {
    if (!aligned(range)) return -EINVAL;
    if (range.bytes != 0) ranges_.push_back({.start = range.begin, .length = range.bytes});
  }
  return call(SENTINEL_IOC_UNTRACK);
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

int KernelSource::drain(std::vector<PageCount>& out) noexcept try {
  const std::lock_guard hold(lock_);
  for (std::size_t group = 0; group < group_totals_.size(); ++group) {
    const auto total = loaded(groups_[group]);
    if (total == group_totals_[group]) continue;
    const auto begin = group * group_counters_;
    const auto end = std::min(begin + group_counters_, drained_.size());
    out.reserve(out.size() + (end - begin));  // before anything is noted as drained
    for (auto slot = begin; slot < end; ++slot) {
      const auto& counter = counters_[slot];
      auto& before = drained_[slot];
      const PageCount now{before.tag, loaded(counter.reads), loaded(counter.writes),
                          loaded(counter.even)};
      if (now.reads + now.writes == before.reads + before.writes) continue;
      out.push_back(
          {now.tag, now.reads - before.reads, now.writes - before.writes, now.even - before.even});
      before = now;
    }
    group_totals_[group] = total;
  }
  return 0;
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

}  // namespace sentinel
