// Two NUMA nodes on a machine that has one: the memory is real, where it lies is pretended. A page
// belongs to the node that its range was bound to when it was first touched, until it is moved.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/host/node_calls.h"

namespace sentinel {

class FakeNodes final : public NodeCalls {
 public:
  static constexpr std::uint64_t kPage = 4096;

  explicit FakeNodes(bool huge = false) : unit_(huge ? 2u << 20 : kPage) {}

  // What a page answers when it is asked to go to a node: 0, or an errno.
  std::function<int(std::uintptr_t page, int node)> answer;
  std::atomic<std::chrono::microseconds> delay = std::chrono::microseconds{0};  // of a call
  std::size_t stops_after = ~0ull;       // pages that a call looks at; it fails at the next one
  std::atomic<std::uint64_t> calls = 0;  // that moved

  long move(std::span<void* const> pages, int node, std::span<int> status) noexcept override {
    std::this_thread::sleep_for(delay.load());
    const std::lock_guard guard(lock_);
    ++calls;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (i == stops_after) return -ENOMEM;
      const auto page = reinterpret_cast<std::uintptr_t>(pages[i]);
      if (!settle(page)) {
        status[i] = -ENOENT;
        continue;
      }
      const int error = answer ? answer(page, node) : 0;
      status[i] = error != 0 ? -error : node;
      if (error != 0) continue;
      const auto begin = page / unit_ * unit_;
      for (auto at = begin; at < begin + unit_; at += kPage)
        if (settle(at)) node_of_[at] = node;
    }
    return 0;
  }

  long where(std::span<void* const> pages, std::span<int> status) noexcept override {
    const std::lock_guard guard(lock_);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const auto page = reinterpret_cast<std::uintptr_t>(pages[i]);
      status[i] = settle(page) ? node_of_[page] : -ENOENT;
    }
    return 0;
  }

  int bind(void* address, std::size_t bytes, int node) noexcept override {
    const std::lock_guard guard(lock_);
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    settle_all(begin, begin + bytes);
    if (policies_.empty())
      begin_ = begin, end_ = begin + bytes - (2u << 20);  // without the page behind it
    const int after = policy(begin + bytes);
    policies_.erase(policies_.lower_bound(begin), policies_.lower_bound(begin + bytes));
    policies_[begin] = node;
    policies_.try_emplace(begin + bytes, after);
    return 0;
  }

  int drop(void* address, std::size_t bytes) noexcept override {
    const std::lock_guard guard(lock_);
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    node_of_.erase(node_of_.lower_bound(begin), node_of_.lower_bound(begin + bytes));
    return madvise(address, bytes, MADV_DONTNEED) == 0 ? 0 : -errno;
  }

  static constexpr int kEither = -1;
  std::uint64_t bytes_in(int node) {
    const std::lock_guard guard(lock_);
    settle_all(begin_, end_);
    std::uint64_t bytes = 0;
    for (const auto& [page, at] : node_of_) bytes += node == kEither || at == node ? kPage : 0;
    return bytes;
  }

 private:
  int policy(std::uintptr_t address) const {
    const auto next = policies_.upper_bound(address);
    return next == policies_.begin() ? 0 : std::prev(next)->second;
  }

  // Whether there is a page; it is in a node from now on.
  bool settle(std::uintptr_t page) {
    unsigned char resident = 0;
    if (mincore(reinterpret_cast<void*>(page), kPage, &resident) != 0 || !(resident & 1))
      return false;
    node_of_.try_emplace(page, policy(page));
    return true;
  }

  void settle_all(std::uintptr_t begin, std::uintptr_t end) {
    std::vector<unsigned char> resident((end - begin) / kPage);
    if (mincore(reinterpret_cast<void*>(begin), end - begin, resident.data()) != 0) return;
    for (std::size_t i = 0; i < resident.size(); ++i)
      if (resident[i] & 1) node_of_.try_emplace(begin + i * kPage, policy(begin + i * kPage));
  }

  std::mutex lock_;
  std::uint64_t unit_;                      // what moves at once
  std::uintptr_t begin_ = 0, end_ = 0;      // all that was ever bound: the first call's
  std::map<std::uintptr_t, int> policies_;  // from this address on
  std::map<std::uintptr_t, int> node_of_;   // per page
};

}  // namespace sentinel
