// Calls move_pages in batches, sorts failures by cause, and tries again.
#include "engine/numa/page_mover.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr int kUnanswered = INT_MIN;
constexpr useconds_t kFirstPause = 20;  // doubled with each further try
constexpr int kMostTries = 6;

// How often a page is asked to move, by what it answered.
int tries(int error) {
  switch (error) {
    case EBUSY:  // somebody looks at the page right now
    case EAGAIN:
      return kMostTries;
    case ENOMEM:  // the node is full; somebody may be leaving it
      return 4;
    case EFAULT:  // nothing is mapped there, unless a mapping was just being replaced
      return 2;
    default:  // EACCES: shared with a child
      return 1;
  }
}

MoveCause cause_of(int error) {
  switch (error) {
    case EBUSY:
    case EAGAIN:
      return MoveCause::ebusy;
    case ENOMEM:
      return MoveCause::enomem;
    case EFAULT:
      return MoveCause::efault;
    case EACCES:
      return MoveCause::eacces;
    default:
      return MoveCause::other;
  }
}

bool nothing_there(int status) { return status == -ENOENT || status == -EFAULT; }

}  // namespace

PageMover::PageMover(NodeCalls& calls, std::uint64_t granule_bytes)
    : calls_(calls), granule_(granule_bytes) {}

void PageMover::add_to(EngineCounters& counters) const noexcept {
  for (std::size_t i = 0; i < causes_.size(); ++i) counters.causes[i] += causes_[i];
  counters.pages_left += left_;
}

void PageMover::move(std::span<const std::uintptr_t> granules, int node,
                     std::span<Moved> out) noexcept {
  pages_.clear();
  for (std::size_t i = 0; i < granules.size(); ++i)
    pages_.push_back({.address = granules[i], .bytes = granule_, .granule = i});
  move_pages(node);
  if (granule_ > kPage) name_small_pages(granules.size(), node);
  std::fill(out.begin(), out.end(), Moved{});
  for (const auto& page : pages_) {
    if (nothing_there(page.status)) continue;
    (page.status == node ? out[page.granule].bytes : out[page.granule].left) += page.bytes;
    if (page.status != node) left_.fetch_add(1, std::memory_order_relaxed);
  }
}

// A huge page moves whole when its first page does. What lies in a granule otherwise are small
// pages, each of which has to be named.
void PageMover::name_small_pages(std::size_t granules, int node) noexcept {
  for (std::size_t i = 0; i < granules; ++i) {
    if (huge(pages_[i], node)) continue;
    pages_[i].bytes = kPage;
    for (std::uint64_t at = kPage; at < granule_; at += kPage)
      pages_.push_back({.address = pages_[i].address + at, .bytes = kPage, .granule = i});
  }
  if (pages_.size() > granules) move_pages(node);
}

// Asking for a few of its pages is enough: small pages come one by one, or all are in one node, of
// which the first alone was just moved.
bool PageMover::huge(const Page& first, int node) noexcept {
  if (first.status != node) return false;
  void* const pages[] = {reinterpret_cast<void*>(first.address + kPage),
                         reinterpret_cast<void*>(first.address + granule_ / 2),
                         reinterpret_cast<void*>(first.address + granule_ - kPage)};
  int status[std::size(pages)] = {kUnanswered, kUnanswered, kUnanswered};
  return calls_.where(pages, status) == 0 &&
         std::all_of(std::begin(status), std::end(status), [&](int s) { return s == node; });
}

void PageMover::move_pages(int node) noexcept {
  useconds_t pause = kFirstPause;
  for (int tried = 1; tried <= kMostTries; ++tried, pause *= 2) {
    asked_.clear();
    for (auto& page : pages_)
      if (!page.settled && (tried == 1 || tries(-page.status) >= tried)) asked_.push_back(&page);
    if (asked_.empty()) return;
    if (tried > 1) usleep(pause);
    attempt(node);
  }
}

// One call. It may end early, or answer as a whole: where the pages are now tells what it did.
void PageMover::attempt(int node) noexcept {
  const auto count = asked_.size();
  addresses_.resize(count);
  status_.assign(count, kUnanswered);
  for (std::size_t i = 0; i < count; ++i)
    addresses_[i] = reinterpret_cast<void*>(asked_[i]->address);
  const long rc = calls_.move(addresses_, node, status_);
  for (std::size_t i = 0; i < count; ++i) {
    if (status_[i] == kUnanswered) {
      int now = kUnanswered;
      calls_.where({&addresses_[i], 1}, {&now, 1});
      status_[i] = now == node || nothing_there(now) ? now : rc < 0 ? static_cast<int>(rc) : -EBUSY;
    }
    settle(*asked_[i], node, status_[i]);
  }
}

void PageMover::settle(Page& page, int node, int status) noexcept {
  page.status = status;
  page.settled = status == node || status == -ENOENT;
  if (page.settled) return;
  const auto cause = static_cast<std::size_t>(cause_of(-status));
  causes_[cause].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace sentinel
