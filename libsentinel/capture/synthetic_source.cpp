// Plays given accesses through windows of open pages, and counts their openings.
#include "capture/synthetic_source.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "capture/sampling.h"

namespace sentinel {
namespace {

constexpr std::uintptr_t kPage = 4096;

}  // namespace

SyntheticSource::SyntheticSource(std::uint32_t window_pages, std::uint64_t seed)
    : info_{.name = "synthetic", .exact = true, .reads_writes_apart = true, .page_bytes = kPage},
      window_(std::max<std::uint32_t>(1, window_pages)),
      seed_(seed) {}

int SyntheticSource::arm(std::span<const ArmRange> ranges) noexcept try {
  if (!std::all_of(ranges.begin(), ranges.end(), aligned)) return -EINVAL;
  disarm(ranges);
  for (const ArmRange& range : ranges)
    for_each_sampled(range.bytes / kPage, range.stride, seed_ ^ range.begin,
                     [&](std::size_t page, std::uint32_t weight, bool even) {
                       pages_[range.begin / kPage + page] = {range.tag, weight, even, 0};
                     });
  return 0;
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

int SyntheticSource::disarm(std::span<const ArmRange> ranges) noexcept {
  for (const ArmRange& range : ranges) {
    if (!aligned(range)) return -EINVAL;
    for (std::uintptr_t at = 0; at < range.bytes; at += kPage)
      pages_.erase((range.begin + at) / kPage);
  }
  return 0;
}

int SyntheticSource::drain(std::vector<PageCount>& out) noexcept try {
  out.reserve(out.size() + counts_.size());
  for (const auto& [tag, count] : counts_) out.push_back(count);
  counts_.clear();
  return 0;
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

void SyntheticSource::play(std::span<const Access> accesses) {
  for (const Access& access : accesses) {
    const auto page = pages_.find(access.address / kPage);
    if (page != pages_.end() && page->second.opening == 0) open(access, page->second);
  }
}

void SyntheticSource::open(const Access& access, Page& page) {
  Thread& thread = threads_[access.thread];
  thread.weight += page.weight;
  page.opening = ++openings_;
  thread.window.push_back({access.address / kPage, page.opening, thread.weight});
  PageCount& count = counts_.try_emplace(page.tag, PageCount{.tag = page.tag}).first->second;
  (access.write ? count.writes : count.reads) += page.weight;
  if (page.even) count.even += page.weight;
  close_left(thread);
}

void SyntheticSource::close_left(Thread& thread) {
  while (!thread.window.empty() &&
         thread.weight - thread.window.front().weight_with_it >= window_) {
    const Opened left = thread.window.front();
    thread.window.pop_front();
    const auto page = pages_.find(left.page);
    if (page != pages_.end() && page->second.opening == left.opening) page->second.opening = 0;
  }
}

}  // namespace sentinel
