// An access source that is told the accesses: for tests of what lies behind the seam, and the
// definition of an opening in its plainest form.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>

#include "sentinel/access_source.h"

namespace sentinel {

class SyntheticSource final : public AccessSource {
 public:
  struct Access {
    std::uintptr_t address = 0;
    bool write = false;
    std::uint32_t thread = 0;
  };

  explicit SyntheticSource(std::uint32_t window_pages, std::uint64_t seed = 0);

  // Performs the accesses, in this order. Of armed pages they are openings.
  void play(std::span<const Access>);

  const SourceInfo& info() const override { return info_; }
  int arm(std::span<const ArmRange>) noexcept override;
  int disarm(std::span<const ArmRange>) noexcept override;
  int drain(std::vector<PageCount>& out) noexcept override;

 private:
  struct Page {
    std::uint32_t tag = 0, weight = 0;
    bool even = false;
    std::uint64_t opening = 0;  // 0: armed
  };
  struct Opened {
    std::uintptr_t page;
    std::uint64_t opening, weight_with_it;
  };
  struct Thread {
    std::deque<Opened> window;
    std::uint64_t weight = 0;
  };
  void open(const Access&, Page&);
  void close_left(Thread&);

  SourceInfo info_;
  std::uint64_t window_, seed_, openings_ = 0;
  std::unordered_map<std::uintptr_t, Page> pages_;  // by page number
  std::unordered_map<std::uint32_t, Thread> threads_;
  std::map<std::uint32_t, PageCount> counts_;
};

}  // namespace sentinel
