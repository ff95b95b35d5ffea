// Everything that can be set from outside, in one table: name, environment variable, default,
// meaning. `sentinel run` and `record` turn their options into these variables; the library in the
// training process reads them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/units.h"
#include "engine/gpu/driver.h"
#include "engine/host/topology.h"
#include "engine/io/checksums.h"

namespace sentinel {

struct OptionRow {
  const char* variable;
  const char* fallback;
  const char* meaning;
};

inline constexpr std::array kOptionTable{
    OptionRow{
        "SENTINEL_MODE", "",
        "record, run, or arena: allocate only, to compare with; empty: Sentinel is not active"},
    OptionRow{"SENTINEL_OUTPUT", "", "where the profile goes (%p: process id)"},
    OptionRow{"SENTINEL_FAST", "",
              "budget of fast memory: a share (20%) or a size (2G); without it, a memory cgroup's"},
    OptionRow{"SENTINEL_POLICY", "sentinel", "policy that makes the plan"},
    OptionRow{"SENTINEL_PROFILE", "", "stored profile to start from"},
    OptionRow{"SENTINEL_PLAN", "", "stored plan to start from"},
    OptionRow{"SENTINEL_DIR", "/var/tmp", "directory of the slow tier; of several disks: A,B"},
    OptionRow{"SENTINEL_TIERS", "",
              "NUMA nodes: fast=node0,slow=node1; a GPU: fast=gpu0,slow=host; or slow=DIR,..."},
    OptionRow{"SENTINEL_CUDA", "libcuda.so.1", "the CUDA driver's library"},
    OptionRow{"SENTINEL_GPU_MEMORY", "auto",
              "how a GPU's memory is had: pools; managed, which all tensors have to fit; or auto, "
              "which of them moves faster"},
    OptionRow{
        "SENTINEL_HOST_MEMORY", "",
        "beside a GPU: the host's memory for tensors; what exceeds it lies in the slow tier's "
        "directory"},
    OptionRow{"SENTINEL_GRANULE", "auto",
              "unit in which memory moves: between NUMA nodes 4K, 2M, or auto; a GPU's 2M to 64M"},
    OptionRow{"SENTINEL_SUMMARY", "", "where the JSON summary of a run goes"},
    OptionRow{"SENTINEL_MACHINE", "", "machine file for planning; default: as measured"},
    OptionRow{"SENTINEL_WINDOW", "", "W in pages; default: the last-level cache"},
    OptionRow{"SENTINEL_EXACT", "0", "1: count every page of every tensor"},
    OptionRow{"SENTINEL_COUNT", "auto",
              "auto, kernel, userfaultfd; samples: those the processor takes; cupti: a GPU's page "
              "faults; ops: op inputs and outputs"},
    OptionRow{"SENTINEL_CUPTI", "libcupti.so", "the library of CUDA's profiling interface"},
    OptionRow{"SENTINEL_IO", "auto",
              "auto, uring or threads; cufile: a GPU reads and writes the file below the host's "
              "memory itself"},
    OptionRow{"SENTINEL_CUFILE", "libcufile.so.0", "the library of GPUDirect Storage"},
    OptionRow{"SENTINEL_MOVE", "auto", "auto, or copy: as on kernels without UFFDIO_MOVE"},
    OptionRow{"SENTINEL_DEPTH", "8", "transfers in flight, each way"},
    OptionRow{
        "SENTINEL_CHECKSUM", "sampled",
        "checksums of what lies in the slow tier's file: full (every byte), sampled (64 bytes "
        "of each 4 KiB), or off"},
    OptionRow{"SENTINEL_RATED_TB", "600", "terabytes that the slow tier's drive may be written"},
    OptionRow{"SENTINEL_ARENA", "256G", "addresses to reserve for tensors"},
    OptionRow{"SENTINEL_ALLOW_TMPFS", "0", "1: accept a slow tier that lies in memory"},
    OptionRow{"SENTINEL_LATE", "try",
              "late promotions between NUMA tiers: wait, leave, or try both"},
    OptionRow{"SENTINEL_INSPECT", "0", "1: the summary says on which node the bytes lie"},
    OptionRow{"SENTINEL_WATCH", "0",
              "count by node in every Nth steady step too (kernel source), for measurements"},
    OptionRow{"SENTINEL_INJECT", "", "fault to inject, for tests (write:3:EIO)"},
    OptionRow{"SENTINEL_COMMAND", "", "the program's command line, for the profile"},
    OptionRow{"SENTINEL_QUIET", "0", "1: say nothing but errors"},
};

inline constexpr const char* kCuFile = "cufile";  // of SENTINEL_IO
inline constexpr const char* kCupti = "cupti";    // of SENTINEL_COUNT
// Of `gpu_memory`, for a recording alone: the host's, which the device's kernels use in place.
inline constexpr const char* kPageable = "pageable";

inline constexpr std::uint64_t kGpuGranule = 2u << 20;  // unless SENTINEL_GRANULE names another

enum class Mode { none, record, run, arena };

struct SessionOptions {
  Mode mode = Mode::none;
  std::string output, policy, profile, plan, slow_directory, summary, machine, io, move, count,
      late, inject, command, cuda, cufile, cupti,
      gpu_memory;  // pools, managed or auto; kPageable
  Budget fast;
  std::optional<NodeTiers> nodes;
  std::optional<int> gpu;               // the device whose memory is the fast tier
  std::shared_ptr<gpu::Driver> driver;  // of the tests, in the place of the library's
  std::uint32_t window_pages = 0;       // 0: the last-level cache
  bool exact = false, allow_tmpfs = false, quiet = false, inspect = false;
  std::uint32_t watch_every = 0;  // steady steps; 0: none is watched
  std::size_t depth = 8;
  ChecksumLevel checksums = ChecksumLevel::sampled;
  std::uint64_t rated_tb = 600;
  std::uint64_t arena_bytes = 0, granule_bytes = 0;
  std::uint64_t host_bytes = 0;  // below a GPU's memory and above the slow tier's; 0: no limit
};

SessionOptions options_from_environment();  // throws Error

// The device of `--tiers fast=gpu0,slow=host`. None: the text names no GPU. Throws Error where it
// names one and something else beside.
std::optional<int> parse_gpu_tier(const std::string& text);

// The machine to plan for, as measured here: of the tiers in use.
std::string local_machine(const SessionOptions&);

}  // namespace sentinel
