// What a session is told, as typed values. table.cpp has a row for each of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/units.h"
#include "engine/gpu/cuda_driver.h"
#include "engine/host/topology.h"
#include "engine/io/checksums.h"

namespace sentinel {

inline constexpr const char* kCuFile = "cufile";  // of SENTINEL_IO
inline constexpr const char* kCupti = "cupti";    // of SENTINEL_COUNT
inline constexpr const char* kRwp = "rwp";        // likewise
// Of `gpu.memory`, for a recording alone: the host's, which the device's kernels use in place.
inline constexpr const char* kPageable = "pageable";

inline constexpr std::uint64_t kGpuGranule = 2u << 20;  // unless SENTINEL_GRANULE names another

enum class Mode { none, record, run, arena };

// Where memory lies, and in which units.
struct TierOptions {
  std::string slow_directory;  // with commas, where there are several
  bool allow_tmpfs = false;
  std::optional<NodeTiers> nodes;
  std::uint64_t node_bytes = 0;  // of the slow node, over the slow tier's directory; 0: all
  std::uint64_t arena_bytes = 0, granule_bytes = 0;
  bool arena_asked = false;  // by the user
  std::string arena_limit;   // of the process, that the arena's size comes from; empty: none

  // Two nodes over a drive.
  bool three() const { return nodes && node_bytes != 0; }
};

// How bytes move between the tiers.
struct MoveOptions {
  std::string io, move, late;
  std::size_t depth = 0;
  ChecksumLevel checksums = ChecksumLevel::off;
  std::uint64_t rated_tb = 0;
  std::string inject;            // a fault, of the tests
  bool recompute = false;        // plans may replay ops
  bool recompute_asked = false;  // by the user
};

// How accesses to pages are counted.
struct CountingOptions {
  std::string source;
  std::uint32_t window_pages = 0;  // 0: the last-level cache
  bool exact = false, inspect = false;
  std::uint32_t watch_every = 0;  // steady steps; 0: none is watched
};

// Several trainings in one amount of fast memory (docs/design/broker.md).
struct SharingOptions {
  std::string broker;          // the path of its socket; empty: this one trains alone
  std::uint64_t bytes = 0;     // of a broker that is started; 0: none is
  std::uint32_t wait_s = ~0u;  // for a first grant
  std::uint32_t priority = 1;
  std::uint64_t training = 0;  // of a launcher, as a rank: see rank_of_process()
  std::uint32_t ranks = 1;     // of it, on this machine
  bool helper = false;         // spawned by a training: it loads data, as long as it does not train
};

// The device whose memory is the fast tier, if one's is.
struct GpuOptions {
  std::optional<int> device;
  std::string memory;                   // pools, managed or auto; kPageable
  std::uint64_t host_bytes = 0;         // below it and above the slow tier's; 0: no limit
  std::shared_ptr<gpu::Driver> driver;  // of the tests, in the place of the library's
  std::string cuda, cupti, cufile;      // libraries
};

// The defaults are the table's: a session's options come from the environment.
struct SessionOptions {
  Mode mode = Mode::none;
  Budget fast;
  std::string policy, profile, plan, machine;
  std::string output, summary, metrics, command;
  std::string rank_note;  // one line: ranks would have written one file; empty: no
  bool quiet = false, strict = false;
  bool better_policy = false;  // none was asked for: where another's plan is better, it is taken
  TierOptions tiers;
  MoveOptions moves;
  CountingOptions counting;
  GpuOptions gpu;
  SharingOptions sharing;
};

}  // namespace sentinel
