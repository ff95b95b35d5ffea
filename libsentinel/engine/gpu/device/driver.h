// The thinnest layer over a GPU's driver: what the executor asks of it, and nothing that decides
// anything. engine/gpu/cuda_driver.h opens the real one; the tests have one that runs streams in
// any order they allow (tests/unit/engine/gpu/fake_gpu.h). Internal to the
// library: the seam may change at any time, and is no contract.
//
// Thread-safe. Every call throws DriverError, with the driver's own name of the call, where it is
// refused; none waits for the device but those named synchronize, and free().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/device_files.h"
#include "sentinel/error.h"

namespace sentinel::gpu {

using Stream = void*;  // null: the default stream
using Event = void*;
using Chunk = std::uint64_t;  // physical memory of the device

// Of what a program is given, as by CUDA's and PyTorch's own allocators: libraries look at
// alignment when they choose how to compute (cublasLt up to 256 bytes), and another way rounds
// otherwise.
constexpr std::uint64_t kAlignment = 512;

class DriverError : public Error {
 public:
  DriverError(const std::string& call, int status, const std::string& name)
      : Error(call + ": " + name), status(status) {}
  int status;
};

// What is waited for comes no more, for the process ends.
struct ProcessEnds {};

// Whether kernels may use the process's ordinary memory, and through which page tables: the
// device's own, which the kernel keeps like the processor's (HMM), or the processor's themselves
// (ATS).
enum class Pageable : std::uint8_t { no, mirrored, shared };

class Driver {
 public:
  virtual ~Driver() = default;

  // Bytes: the unit in which memory is made and mapped; what the device has free.
  virtual std::uint64_t granularity() = 0;
  virtual std::uint64_t free_bytes() = 0;

  // Addresses, and the physical memory behind them. A new chunk has unspecified contents; none: the
  // device is full. Neither mapping nor unmapping waits for streams: whoever unmaps has made sure
  // that nothing uses the range any more.
  virtual std::uintptr_t reserve(std::uint64_t bytes) = 0;
  virtual void unreserve(std::uintptr_t address, std::uint64_t bytes) = 0;
  virtual std::optional<Chunk> create(std::uint64_t bytes) = 0;
  virtual void destroy(Chunk) = 0;
  virtual void map(std::uintptr_t address, std::uint64_t bytes, Chunk) = 0;
  // Neighbours of so many bytes each.
  virtual void map_all(std::uintptr_t address, std::uint64_t bytes, const std::vector<Chunk>&);
  // Of one mapping, or of several neighbours, each as it was mapped.
  virtual void unmap(std::uintptr_t address, std::uint64_t bytes) = 0;
  // Neighbours of so many bytes each.
  virtual void unmap_all(std::uintptr_t address, std::uint64_t bytes, std::uint64_t count) {
    unmap(address, count * bytes);
  }
  // Another device's kernels and copies may use what is mapped from now on, and these ranges of so
  // many bytes, which are. Nobody maps or unmaps meanwhile. False: it has no way to.
  virtual bool share(int /*device*/, const std::vector<std::uintptr_t>& /*mapped*/,
                     std::uint64_t /*bytes*/) {
    return true;
  }

  // Memory as the driver gives it, where it is used and not moved. None: the device is full.
  // Whoever frees it has made sure that nothing uses it any more.
  virtual std::optional<std::uintptr_t> allocate(std::uint64_t bytes);
  virtual void free(std::uintptr_t) {}

  // Managed memory (managed_driver.h), where a driver has it: a range, the advice that it
  // belongs on the device, and a part's way to the device or the host in a stream's order.
  virtual std::uintptr_t manage(std::uint64_t bytes);
  virtual void unmanage(std::uintptr_t) {}
  virtual void prefer_device(std::uintptr_t, std::uint64_t) {}
  virtual void prefetch(std::uintptr_t, std::uint64_t, bool /*to_device*/, Stream) {}
  virtual bool faults() { return false; }  // kernels bring what is elsewhere page by page
  // Whether the range, whose memory is mapped, was sent to the host all the same and is brought
  // back now, in the stream's order: else its kernels would have to.
  virtual bool bring_back(std::uintptr_t, std::uint64_t, Stream) { return false; }

  // Ordinary memory of the process, where kernels may use it, and the advice that it stays on the
  // host nevertheless.
  virtual Pageable pageable() { return Pageable::no; }
  virtual void prefer_host(std::uintptr_t, std::uint64_t) {}

  // Page-locked memory of the host.
  virtual void* pin(std::uint64_t bytes) = 0;
  virtual void unpin(void*) = 0;

  // Files that the device reads and writes itself, where a driver has such. The descriptors stay
  // open, and the driver lives, as long as they.
  virtual std::unique_ptr<DeviceFiles> open_files(const std::vector<int>& descriptors,
                                                  const std::string& library);

  virtual Stream make_stream() = 0;
  virtual void destroy_stream(Stream) = 0;
  // Between the host's pinned memory and the device, or within it; in the stream's order.
  virtual void copy(void* to, const void* from, std::uint64_t bytes, Stream) = 0;
  // The same of any memory of the host. The bytes alone: no page changes its place for it.
  virtual void transfer(void* to, const void* from, std::uint64_t bytes, Stream stream) {
    copy(to, from, bytes, stream);
  }

  virtual Event make_event() = 0;
  virtual void destroy_event(Event) = 0;
  virtual void record(Event, Stream) = 0;
  virtual void wait(Stream, Event) = 0;  // for what was recorded last, when this is called
  virtual bool done(Event) = 0;          // true as well where nothing was recorded
  virtual void synchronize(Event) = 0;   // the calling thread waits
  // Also the calling thread: for all that the device was given until now, on whatever stream.
  virtual void synchronize_all() {}

  // How threads wait for each other that call a driver: one of virtual time has to know. May return
  // before anybody has called unpark().
  virtual void park(std::condition_variable& until, std::unique_lock<std::mutex>& lock) {
    until.wait(lock);
  }
  virtual void unpark(std::condition_variable& until) { until.notify_all(); }
};

inline void Driver::map_all(std::uintptr_t address, std::uint64_t bytes,
                            const std::vector<Chunk>& chunks) {
  for (const Chunk chunk : chunks) {
    map(address, bytes, chunk);
    address += bytes;
  }
}

inline std::optional<std::uintptr_t> Driver::allocate(std::uint64_t) {
  throw Error("this driver gives memory in chunks alone");
}

inline std::uintptr_t Driver::manage(std::uint64_t) {
  throw Error("this driver has no managed memory");
}

inline std::unique_ptr<DeviceFiles> Driver::open_files(const std::vector<int>&,
                                                       const std::string&) {
  throw Error("this driver moves nothing between a device and files");
}

}  // namespace sentinel::gpu
