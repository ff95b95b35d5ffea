// Executors between frames in memory and the slots of a SlowFile.
#pragma once

#include <memory>
#include <string>

#include "engine/io/slow_file.h"
#include "sentinel/tier.h"

namespace sentinel {

namespace gpu {
class DeviceFiles;
}

enum class IoBackend { automatic, uring, threads };
IoBackend parse_io_backend(const std::string& text);  // throws Error

struct ExecutorOptions {
  IoBackend backend = IoBackend::automatic;  // io_uring where it is permitted, else threads
  std::size_t depth = 8;
  std::uint64_t frame_bytes = 0;
  // For tests: "write:3:EIO" fails the third write; "read:1:short" is the first read of a file that
  // has lost its end, which is an I/O error; "read:2:flip" flips a bit of what the second one
  // reads.
  std::string inject;
  gpu::DeviceFiles* device = nullptr;  // of the same files; by threads alone
};

// Of whatever backend: a write takes the checksums of its frame, a read compares them, and every
// transfer looks at where the file ends. It completes with kOtherBytes or kOtherEnd where that
// differs. A write starts with the next wait, which is called without a lock: sums take time.
std::unique_ptr<Executor> make_executor(const SlowFile&, const ExecutorOptions&);

// Each throws Error where the mechanism is refused.
std::unique_ptr<Executor> make_uring_executor(const SlowFile&, const ExecutorOptions&);
std::unique_ptr<Executor> make_thread_executor(const SlowFile&, const ExecutorOptions&);
std::unique_ptr<Executor> make_injecting_executor(std::unique_ptr<Executor>,
                                                  const std::string& inject);
std::unique_ptr<Executor> make_checked_executor(std::unique_ptr<Executor>, const SlowFile&,
                                                const ExecutorOptions&);

}  // namespace sentinel
