// The access source of the patched kernel: /dev/sentinel (kernel/, include/uapi/linux/sentinel.h).
//
// Counts any private anonymous memory of this process, where it lies and while it is moved between
// nodes; nothing is mapped, replaced or registered for it. Kernel-mode accesses count like any
// other, a debugger's do not. Draining costs no system call, arming and disarming one each.
//
// A device that follows the process's page tables (HMM, ATS) is counted as well: the kernel thread
// that serves its faults is the thread whose window they go through. What is served together with
// what the device asked for counts too, so then it is not exact. Not run on such a device yet.
//
// Exactness is that of UserfaultSource, whose definition the kernel implements: the same program
// and W give the same counts. A page that is unmapped is disarmed by that.
//
// Thread-safe. Conditions: a process has one such source at a time; a forked child must not use it
// (-ESRCH).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/descriptor.h"
#include "sentinel/access_source.h"
#include "uapi/linux/sentinel.h"

namespace sentinel {

// A counter in the mapping, which the kernel goes on writing.
inline std::uint64_t loaded(const __u64& value) {
  return __atomic_load_n(&value, __ATOMIC_ACQUIRE);
}

class KernelSource final : public AccessSource {
 public:
  struct Options {
    std::uint32_t window_pages = 8192;  // W
    std::uint64_t seed = 0;             // of the sampled pages' places
    bool in_company = false;            // pages that left a window are armed again together
    std::uint32_t most_tags = 1u << 18;
    std::string device;  // how a device that is to be counted follows the page tables, if one is
  };

  // Why this process cannot have one: 0, or a negative errno (-ENOENT: no patched kernel).
  static int probe() noexcept;

  explicit KernelSource(const Options&);  // throws Error
  ~KernelSource() override;
  KernelSource(const KernelSource&) = delete;
  KernelSource& operator=(const KernelSource&) = delete;

  const SourceInfo& info() const override { return info_; }
  int arm(std::span<const ArmRange>) noexcept override;
  int disarm(std::span<const ArmRange>) noexcept override;
  int drain(std::vector<PageCount>& out) noexcept override;

  // Openings since the beginning, of all tags, by the NUMA node in which the page lay (reads of the
  // kernel's own counters, without weights).
  const sentinel_status& status() const { return *status_; }

 private:
  std::int64_t slot_of(std::uint32_t tag);
  int append(const ArmRange&);
  int call(unsigned long request) noexcept;

  SourceInfo info_;
  const std::uint64_t seed_;
  OurFile file_;
  std::size_t map_bytes_ = 0;
  const sentinel_status* status_ = nullptr;
  const __u64* groups_ = nullptr;
  const sentinel_counter* counters_ = nullptr;
  std::size_t group_counters_ = 0, most_tags_ = 0;

  std::mutex lock_;  // guards all below
  std::unordered_map<std::uint32_t, std::uint32_t> slots_;
  std::vector<PageCount> drained_;           // per slot: its tag, and what has been drained
  std::vector<std::uint64_t> group_totals_;  // when last drained
  std::vector<sentinel_range> ranges_;       // of one call, reused
};

}  // namespace sentinel
