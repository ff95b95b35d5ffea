// How much of the host's memory granules of a GPU may take, and how the file below it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/io/executors.h"

namespace sentinel::gpu {

struct HostOptions {
  std::uint64_t bytes = 0;  // of memory at most; 0: no limit, and no file
  std::string directory;    // of the file, or several (SlowFile::Options)
  bool allow_memory = false;
  IoBackend io = IoBackend::automatic;
  std::size_t depth = 8;
  std::string inject;                                // of ExecutorOptions
  ChecksumLevel checksums = ChecksumLevel::sampled;  // off where the device moves bytes itself
  std::string cufile;  // its library: the device reads and writes the file; empty: it does not
};

}  // namespace sentinel::gpu
