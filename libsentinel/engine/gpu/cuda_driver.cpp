// The CUDA driver API, loaded at run time: the functions and structures that are used are declared
// here as the driver's ABI has had them since CUDA 11.0, so that nothing of CUDA is needed to
// build.
#include "engine/gpu/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdio>

#include "engine/gpu/device/cufile.h"

namespace sentinel::gpu {
namespace {

using Result = int;
using Device = int;
using Context = struct CUctx_st*;
using DevicePointer = unsigned long long;
using Handle = unsigned long long;

constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotReady = 600;

struct Location {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};
constexpr Location kHost{.type = 2};  // CU_MEM_LOCATION_TYPE_HOST
struct AllocationProperties {
  int type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 0;
  Location location;
  void* win32 = nullptr;
  struct {
    unsigned char compression = 0, rdma = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};
struct Access {
  Location location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
static_assert(sizeof(AllocationProperties) == 32 && sizeof(Access) == 12);

// X(name in the library, arguments)
#define SENTINEL_CUDA_CONTEXT_CALLS(X)            \
  X(cuInit, (unsigned))                           \
  X(cuGetErrorName, (Result, const char**))       \
  X(cuDeviceGet, (Device*, int))                  \
  X(cuDeviceGetAttribute, (int*, int, Device))    \
  X(cuDevicePrimaryCtxRetain, (Context*, Device)) \
  X(cuDevicePrimaryCtxRelease_v2, (Device))       \
  X(cuCtxPushCurrent_v2, (Context))               \
  X(cuCtxPopCurrent_v2, (Context*))               \
  X(cuCtxSynchronize, ())                         \
  X(cuDeviceCanAccessPeer, (int*, Device, Device))

#define SENTINEL_CUDA_MEMORY_CALLS(X)                                                       \
  X(cuMemGetInfo_v2, (std::size_t*, std::size_t*))                                          \
  X(cuMemGetAllocationGranularity, (std::size_t*, const AllocationProperties*, int))        \
  X(cuMemAddressReserve, (DevicePointer*, std::size_t, std::size_t, DevicePointer, Handle)) \
  X(cuMemAddressFree, (DevicePointer, std::size_t))                                         \
  X(cuMemCreate, (Handle*, std::size_t, const AllocationProperties*, Handle))               \
  X(cuMemRelease, (Handle))                                                                 \
  X(cuMemMap, (DevicePointer, std::size_t, std::size_t, Handle, Handle))                    \
  X(cuMemSetAccess, (DevicePointer, std::size_t, const Access*, std::size_t))               \
  X(cuMemUnmap, (DevicePointer, std::size_t))                                               \
  X(cuMemAllocManaged, (DevicePointer*, std::size_t, unsigned))                             \
  X(cuMemAlloc_v2, (DevicePointer*, std::size_t))                                           \
  X(cuMemFree_v2, (DevicePointer))                                                          \
  X(cuMemHostAlloc, (void**, std::size_t, unsigned))                                        \
  X(cuMemFreeHost, (void*))

#define SENTINEL_CUDA_STREAM_CALLS(X)                                   \
  X(cuMemcpyAsync, (DevicePointer, DevicePointer, std::size_t, Stream)) \
  X(cuStreamCreate, (Stream*, unsigned))                                \
  X(cuStreamDestroy_v2, (Stream))                                       \
  X(cuStreamWaitEvent, (Stream, Event, unsigned))                       \
  X(cuEventCreate, (Event*, unsigned))                                  \
  X(cuEventDestroy_v2, (Event))                                         \
  X(cuEventRecord, (Event, Stream))                                     \
  X(cuEventQuery, (Event))                                              \
  X(cuEventSynchronize, (Event))

// Functions that not every driver has. Of managed memory, and needed for nothing else: as of CUDA
// 12.2 with a location, before with a device. As of CUDA 12.5 an event of all that a context was
// given.
#define SENTINEL_CUDA_OPTIONAL_CALLS(X)                                              \
  X(cuMemAdvise_v2, (DevicePointer, std::size_t, int, Location))                     \
  X(cuMemPrefetchAsync_v2, (DevicePointer, std::size_t, Location, unsigned, Stream)) \
  X(cuMemAdvise, (DevicePointer, std::size_t, int, Device))                          \
  X(cuMemPrefetchAsync, (DevicePointer, std::size_t, Device, Stream))                \
  X(cuCtxRecordEvent, (Context, Event))

#define SENTINEL_CUDA_POINTER(name, arguments) Result(*name) arguments = nullptr;
struct ContextCalls {
  SENTINEL_CUDA_CONTEXT_CALLS(SENTINEL_CUDA_POINTER)
};
struct MemoryCalls {
  SENTINEL_CUDA_MEMORY_CALLS(SENTINEL_CUDA_POINTER)
};
struct StreamCalls {
  SENTINEL_CUDA_STREAM_CALLS(SENTINEL_CUDA_POINTER)
};
struct OptionalCalls {
  SENTINEL_CUDA_OPTIONAL_CALLS(SENTINEL_CUDA_POINTER)
};
#undef SENTINEL_CUDA_POINTER
struct DriverCalls : ContextCalls, MemoryCalls, StreamCalls, OptionalCalls {};

DriverCalls load(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(fmt::format("no CUDA driver here ({}); install NVIDIA's, and run where a GPU is",
                            dlerror()));
  DriverCalls calls;
#define SENTINEL_CUDA_FIND(name, arguments) \
  calls.name = reinterpret_cast<decltype(calls.name)>(dlsym(library, #name));
#define SENTINEL_CUDA_REQUIRE(name, arguments) \
  SENTINEL_CUDA_FIND(name, arguments)          \
  if (calls.name == nullptr)                   \
    throw Error(                               \
        fmt::format("{} has no {}: a driver for CUDA 11.0 or later is needed", file, #name));
  SENTINEL_CUDA_CONTEXT_CALLS(SENTINEL_CUDA_REQUIRE)
  SENTINEL_CUDA_MEMORY_CALLS(SENTINEL_CUDA_REQUIRE)
  SENTINEL_CUDA_STREAM_CALLS(SENTINEL_CUDA_REQUIRE)
  SENTINEL_CUDA_OPTIONAL_CALLS(SENTINEL_CUDA_FIND)
#undef SENTINEL_CUDA_REQUIRE
#undef SENTINEL_CUDA_FIND
  return calls;
}

#define CHECKED(call, ...) check(#call, calls_.call(__VA_ARGS__))

class CudaDriver final : public Driver {
 public:
  CudaDriver(int device, const std::string& library) : calls_(load(library)) {
    CHECKED(cuInit, 0);
    CHECKED(cuDeviceGet, &device_, device);
    CHECKED(cuDevicePrimaryCtxRetain, &context_, device_);
    properties_.location.id = device_;
    access_ = {{.location = properties_.location}};
  }
  // Nobody is left to tell what is refused; the driver may have gone first.
  ~CudaDriver() override { calls_.cuDevicePrimaryCtxRelease_v2(device_); }

  std::uint64_t granularity() override {
    const Here here(*this);
    std::size_t bytes = 0;
    CHECKED(cuMemGetAllocationGranularity, &bytes, &properties_, 0);
    return bytes;
  }
  std::uint64_t free_bytes() override {
    const Here here(*this);
    std::size_t free = 0, total = 0;
    CHECKED(cuMemGetInfo_v2, &free, &total);
    return free;
  }

  std::uintptr_t reserve(std::uint64_t bytes) override {
    const Here here(*this);
    DevicePointer address = 0;
    CHECKED(cuMemAddressReserve, &address, bytes, 0, 0, 0);
    return address;
  }
  void unreserve(std::uintptr_t address, std::uint64_t bytes) override {
    const Here here(*this);
    CHECKED(cuMemAddressFree, address, bytes);
  }
  std::optional<Chunk> create(std::uint64_t bytes) override {
    const Here here(*this);
    Handle handle = 0;
    const Result result = calls_.cuMemCreate(&handle, bytes, &properties_, 0);
    if (result == kOutOfMemory) return std::nullopt;
    check("cuMemCreate", result);
    return handle;
  }
  void destroy(Chunk chunk) override {
    const Here here(*this);
    CHECKED(cuMemRelease, chunk);
  }
  void map(std::uintptr_t address, std::uint64_t bytes, Chunk chunk) override {
    map_all(address, bytes, {chunk});
  }
  // Giving access is what takes long.
  void map_all(std::uintptr_t address, std::uint64_t bytes,
               const std::vector<Chunk>& chunks) override {
    const Here here(*this);
    for (std::size_t i = 0; i < chunks.size(); ++i)
      CHECKED(cuMemMap, address + i * bytes, bytes, 0, chunks[i], 0);
    CHECKED(cuMemSetAccess, address, chunks.size() * bytes, access_.data(), access_.size());
  }
  void unmap(std::uintptr_t address, std::uint64_t bytes) override {
    const Here here(*this);
    CHECKED(cuMemUnmap, address, bytes);
  }
  // One by one where a driver takes no more at once.
  void unmap_all(std::uintptr_t address, std::uint64_t bytes, std::uint64_t count) override {
    if (count > 1 && !one_by_one_) {
      const Here here(*this);
      const Result result = calls_.cuMemUnmap(address, count * bytes);
      if (result != kInvalidValue) return check("cuMemUnmap", result);
      if (!one_by_one_.exchange(true))
        std::fprintf(stderr,
                     "sentinel: this driver unmaps no neighbours together (cuMemUnmap): they are "
                     "unmapped one by one, which takes longer\n");
    }
    for (std::uint64_t i = 0; i < count; ++i) unmap(address + i * bytes, bytes);
  }
  // Unlike what cuMemAlloc gives, what is mapped is not a peer's by cuCtxEnablePeerAccess.
  bool share(int device, const std::vector<std::uintptr_t>& mapped, std::uint64_t bytes) override {
    const Here here(*this);
    Device peer = 0;
    int reaches = 0;
    CHECKED(cuDeviceGet, &peer, device);
    CHECKED(cuDeviceCanAccessPeer, &reaches, peer, device_);
    if (reaches == 0) return false;
    const Access access{.location = {.id = peer}};
    for (const auto address : mapped) CHECKED(cuMemSetAccess, address, bytes, &access, 1);
    access_.push_back(access);
    return true;
  }

  std::optional<std::uintptr_t> allocate(std::uint64_t bytes) override {
    const Here here(*this);
    DevicePointer address = 0;
    const Result result = calls_.cuMemAlloc_v2(&address, bytes);
    if (result == kOutOfMemory) return std::nullopt;
    check("cuMemAlloc_v2", result);
    return address;
  }
  void free(std::uintptr_t address) override {
    const Here here(*this);
    CHECKED(cuMemFree_v2, address);
  }
  void synchronize_all() override {
    const Here here(*this);
    if (calls_.cuCtxRecordEvent == nullptr) return CHECKED(cuCtxSynchronize);
    std::unique_ptr<void, Result (*)(Event)> event(make_event(), calls_.cuEventDestroy_v2);
    CHECKED(cuCtxRecordEvent, context_, event.get());
    CHECKED(cuEventSynchronize, event.get());
    CHECKED(cuEventDestroy_v2, event.release());
  }

  std::uintptr_t manage(std::uint64_t bytes) override {
    if (!places()) throw Error("this driver cannot say where managed memory lies; use pools");
    const Here here(*this);
    constexpr unsigned kGlobal = 1;
    DevicePointer address = 0;
    CHECKED(cuMemAllocManaged, &address, bytes, kGlobal);
    return address;
  }
  void unmanage(std::uintptr_t address) override {
    const Here here(*this);
    CHECKED(cuMemFree_v2, address);
  }
  void prefer_device(std::uintptr_t address, std::uint64_t bytes) override {
    prefer(address, bytes, properties_.location);
  }
  void prefetch(std::uintptr_t address, std::uint64_t bytes, bool to_device,
                Stream stream) override {
    const Here here(*this);
    const Location to = to_device ? properties_.location : kHost;
    if (calls_.cuMemPrefetchAsync_v2 != nullptr)
      CHECKED(cuMemPrefetchAsync_v2, address, bytes, to, 0, stream);
    else
      CHECKED(cuMemPrefetchAsync, address, bytes, as_device(to), stream);
  }

  bool faults() override {
    constexpr int kConcurrentManagedAccess = 89;
    return attribute(kConcurrentManagedAccess) != 0;
  }

  Pageable pageable() override {
    constexpr int kPageableMemoryAccess = 88, kUsesHostPageTables = 100;
    if (attribute(kPageableMemoryAccess) == 0) return Pageable::no;
    return attribute(kUsesHostPageTables) != 0 ? Pageable::shared : Pageable::mirrored;
  }
  void prefer_host(std::uintptr_t address, std::uint64_t bytes) override {
    prefer(address, bytes, kHost);
  }

  void* pin(std::uint64_t bytes) override {
    const Here here(*this);
    constexpr unsigned kPortable = 1;
    void* memory = nullptr;
    CHECKED(cuMemHostAlloc, &memory, bytes, kPortable);
    return memory;
  }
  void unpin(void* memory) override {
    const Here here(*this);
    CHECKED(cuMemFreeHost, memory);
  }

  std::unique_ptr<DeviceFiles> open_files(const std::vector<int>& descriptors,
                                          const std::string& library) override {
    return open_cufile(library, descriptors, [this](const auto& transfer) {
      const Here here(*this);
      return transfer();
    });
  }

  Stream make_stream() override {
    const Here here(*this);
    constexpr unsigned kNonBlocking = 1;  // does not wait for the default stream
    Stream stream = nullptr;
    CHECKED(cuStreamCreate, &stream, kNonBlocking);
    return stream;
  }
  void destroy_stream(Stream stream) override {
    const Here here(*this);
    CHECKED(cuStreamDestroy_v2, stream);
  }
  void copy(void* to, const void* from, std::uint64_t bytes, Stream stream) override {
    const Here here(*this);
    CHECKED(cuMemcpyAsync, reinterpret_cast<DevicePointer>(to),
            reinterpret_cast<DevicePointer>(from), bytes, stream);
  }

  Event make_event() override {
    const Here here(*this);
    constexpr unsigned kBlockingSync = 1, kNoTiming = 2;
    Event event = nullptr;
    CHECKED(cuEventCreate, &event, kBlockingSync | kNoTiming);
    return event;
  }
  void destroy_event(Event event) override {
    const Here here(*this);
    CHECKED(cuEventDestroy_v2, event);
  }
  void record(Event event, Stream stream) override {
    const Here here(*this);
    CHECKED(cuEventRecord, event, stream);
  }
  void wait(Stream stream, Event event) override {
    const Here here(*this);
    CHECKED(cuStreamWaitEvent, stream, event, 0);
  }
  bool done(Event event) override {
    const Here here(*this);
    const Result result = calls_.cuEventQuery(event);
    if (result == kNotReady) return false;
    check("cuEventQuery", result);
    return true;
  }
  void synchronize(Event event) override {
    const Here here(*this);
    CHECKED(cuEventSynchronize, event);
  }

 private:
  // The device's context, for one call: the program's own choice of device stays as it is.
  class Here {
   public:
    explicit Here(const CudaDriver& driver) : driver_(driver) {
      driver.check("cuCtxPushCurrent", driver.calls_.cuCtxPushCurrent_v2(driver.context_));
    }
    ~Here() {  // where that is refused the driver is gone, which the next push tells
      Context popped;
      driver_.calls_.cuCtxPopCurrent_v2(&popped);
    }

   private:
    const CudaDriver& driver_;
  };

  int attribute(int which) const {
    int value = 0;
    CHECKED(cuDeviceGetAttribute, &value, which, device_);
    return value;
  }
  void prefer(std::uintptr_t address, std::uint64_t bytes, Location location) const {
    constexpr int kSetPreferredLocation = 3;
    if (!places()) throw Error("this driver takes no advice where memory belongs");
    const Here here(*this);
    if (calls_.cuMemAdvise_v2 != nullptr)
      CHECKED(cuMemAdvise_v2, address, bytes, kSetPreferredLocation, location);
    else
      CHECKED(cuMemAdvise, address, bytes, kSetPreferredLocation, as_device(location));
  }
  bool places() const {
    const bool locations =
        calls_.cuMemAdvise_v2 != nullptr && calls_.cuMemPrefetchAsync_v2 != nullptr;
    return locations || (calls_.cuMemAdvise != nullptr && calls_.cuMemPrefetchAsync != nullptr);
  }
  static Device as_device(Location location) {
    constexpr Device kCpu = -1;  // CU_DEVICE_CPU
    return location.type == kHost.type ? kCpu : location.id;
  }

  void check(const char* call, Result result) const {
    if (result == kSuccess) return;
    const char* name = nullptr;
    calls_.cuGetErrorName(result, &name);
    throw DriverError(call, result, name != nullptr ? name : fmt::format("error {}", result));
  }

  static inline std::atomic<bool> one_by_one_ = false;  // of the process: it is told once

  DriverCalls calls_;
  Device device_ = 0;
  Context context_ = nullptr;
  AllocationProperties properties_;
  std::vector<Access> access_;  // to what is mapped: this device's, and theirs that share it
};

}  // namespace

std::unique_ptr<Driver> open_driver(int device, const std::string& library) {
  return std::make_unique<CudaDriver>(device, library);
}

}  // namespace sentinel::gpu
