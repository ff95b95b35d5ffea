// A CUDA driver's library, and cuFile's (CUPTI's: fake_cupti.cpp), as far as libsentinel uses one:
// the device's memory is a file in memory that is mapped where the program asks for it, so that a
// touch of what is not mapped ends the program, as it would on a device. Streams run at once;
// fake_gpu.h has those that do not.
//
// SENTINEL_FAKE_CUDA_BYTES: what the device has (16 GiB). SENTINEL_FAKE_CUDA_FAIL=cuMemMap:10: the
// tenth call of that name is refused, since the variable was last another.
// SENTINEL_FAKE_CUDA_PAGEABLE: hmm or ats, how the device's kernels, which are the processor's,
// reach pageable memory; else they are said not to.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "fake_faults.h"
#include "fake_files.h"

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kIllegalAddress = 700;
constexpr std::uint64_t kUnit = 2u << 20;

struct Chunk {
  std::uint64_t bytes;
  bool fresh = true;
};

std::mutex lock;
std::map<std::uint64_t, Chunk> chunks;  // by place in the file, in units, and one more
struct Mapping {
  std::uint64_t handle, bytes;
};
std::map<std::uintptr_t, Mapping> mappings;
int file = -1;

std::uint64_t capacity() {
  const char* bytes = std::getenv("SENTINEL_FAKE_CUDA_BYTES");
  return bytes != nullptr ? std::stoull(bytes) : 16ull << 30;
}

std::uint64_t used() {
  std::uint64_t sum = 0;
  for (const auto& [place, chunk] : chunks) sum += chunk.bytes;
  return sum;
}

bool fails(const char* call) {
  static std::mutex counting;
  static std::string last;
  static int calls;
  const char* asked = std::getenv("SENTINEL_FAKE_CUDA_FAIL");
  const std::string text = asked != nullptr ? asked : "";
  const std::lock_guard guard(counting);
  if (std::exchange(last, text) != text) calls = 0;
  if (text.empty()) return false;
  const auto colon = text.find(':');
  return text.substr(0, colon) == call && ++calls == std::stoi(text.substr(colon + 1));
}

int place_at(std::uintptr_t address, std::uint64_t bytes, int flags, int descriptor, off_t offset) {
  void* got = mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, flags, descriptor, offset);
  return got == MAP_FAILED ? kInvalidValue : kSuccess;
}

}  // namespace

#define CUDA(name, ...)                                                    \
  extern "C" __attribute__((visibility("default"))) int name(__VA_ARGS__); \
  extern "C" int name(__VA_ARGS__)
#define MAY_FAIL \
  if (fails(__func__)) return kIllegalAddress

CUDA(cuInit, unsigned) {
  MAY_FAIL;
  const std::lock_guard guard(lock);
  if (file < 0) file = memfd_create("device", MFD_CLOEXEC);
  return file < 0 || ftruncate64(file, static_cast<off_t>(capacity())) != 0 ? kOutOfMemory
                                                                            : kSuccess;
}
CUDA(cuGetErrorName, int code, const char** name) {
  *name = code == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == kOutOfMemory  ? "CUDA_ERROR_OUT_OF_MEMORY"
                                  : "CUDA_ERROR_INVALID_VALUE";
  return kSuccess;
}
CUDA(cuDeviceGet, int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kSuccess : 101;
}
CUDA(cuDeviceGetAttribute, int* value, int attribute, int) {
  constexpr int kPageableMemoryAccess = 88, kUsesHostPageTables = 100;
  const char* set = std::getenv("SENTINEL_FAKE_CUDA_PAGEABLE");
  const std::string pageable = set != nullptr ? set : "";
  *value = attribute == kPageableMemoryAccess ? !pageable.empty()
           : attribute == kUsesHostPageTables ? pageable == "ats"
                                              : 1;
  return kSuccess;
}
CUDA(cuDevicePrimaryCtxRetain, void** context, int) {
  *context = &chunks;
  return kSuccess;
}
CUDA(cuDevicePrimaryCtxRelease_v2, int) { return kSuccess; }
CUDA(cuCtxPushCurrent_v2, void*) { return kSuccess; }
CUDA(cuCtxPopCurrent_v2, void** context) {
  *context = &chunks;
  return kSuccess;
}
CUDA(cuMemGetInfo_v2, std::size_t* free, std::size_t* total) {
  const std::lock_guard guard(lock);
  *total = capacity();
  *free = capacity() - used();
  return kSuccess;
}
CUDA(cuMemGetAllocationGranularity, std::size_t* bytes, const void*, int) {
  *bytes = kUnit;
  return kSuccess;
}
CUDA(cuMemAddressReserve, std::uint64_t* address, std::size_t bytes, std::size_t, std::uint64_t,
     std::uint64_t) {
  MAY_FAIL;
  void* got =
      mmap(nullptr, bytes + kUnit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return kOutOfMemory;
  *address = (reinterpret_cast<std::uintptr_t>(got) + kUnit - 1) / kUnit * kUnit;
  return kSuccess;
}
CUDA(cuMemAddressFree, std::uint64_t address, std::size_t bytes) {
  return munmap(reinterpret_cast<void*>(address), bytes) == 0 ? kSuccess : kInvalidValue;
}
// On some systems a chunk for other devices' direct access (gpuDirectRDMACapable) cannot be used.
CUDA(cuMemCreate, std::uint64_t* handle, std::size_t bytes, const void* properties, std::uint64_t) {
  constexpr std::size_t kDirectRdma = 25;
  MAY_FAIL;
  if (static_cast<const unsigned char*>(properties)[kDirectRdma] != 0) return kInvalidValue;
  const std::lock_guard guard(lock);
  std::uint64_t place = 0;  // the first gap that is large enough
  for (const auto& [other, chunk] : chunks) {
    if ((other - 1) * kUnit - place >= bytes) break;
    place = (other - 1) * kUnit + chunk.bytes;
  }
  if (place + bytes > capacity()) return kOutOfMemory;
  chunks[*handle = place / kUnit + 1] = {bytes};
  return kSuccess;
}
CUDA(cuMemRelease, std::uint64_t handle) {
  const std::lock_guard guard(lock);
  const auto at = chunks.find(handle);
  if (at == chunks.end()) return kInvalidValue;
  fallocate64(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>((handle - 1) * kUnit), static_cast<off_t>(at->second.bytes));
  chunks.erase(at);
  return kSuccess;
}
CUDA(cuMemMap, std::uint64_t address, std::size_t bytes, std::size_t, std::uint64_t handle,
     std::uint64_t) {
  MAY_FAIL;
  const std::lock_guard guard(lock);
  if (mappings.contains(address) || !chunks.contains(handle)) return kInvalidValue;
  mappings[address] = {handle, bytes};
  return place_at(address, bytes, MAP_SHARED | MAP_FIXED, file,
                  static_cast<off_t>((handle - 1) * kUnit));
}
// Of what is mapped there, one beside the other. What is new holds nothing to rely on.
CUDA(cuMemSetAccess, std::uint64_t address, std::size_t bytes, const void*, std::size_t) {
  const std::lock_guard guard(lock);
  for (const auto end = address + bytes; address < end;) {
    if (!mappings.contains(address)) return kInvalidValue;
    auto& chunk = chunks[mappings[address].handle];
    auto* memory = reinterpret_cast<void*>(address);
    if (mprotect(memory, chunk.bytes, PROT_READ | PROT_WRITE) != 0) return kInvalidValue;
    if (std::exchange(chunk.fresh, false)) std::memset(memory, 0xa5, chunk.bytes);
    address += chunk.bytes;
  }
  return kSuccess;
}
// Of one mapping, or of several that lie one beside the other, but of no part of one.
CUDA(cuMemUnmap, std::uint64_t address, std::size_t bytes) {
  MAY_FAIL;
  const std::lock_guard guard(lock);
  const auto begin = mappings.find(address);
  auto end = begin;
  auto covered = address;
  for (; end != mappings.end() && end->first == covered && covered < address + bytes; ++end)
    covered += end->second.bytes;
  if (covered != address + bytes) return kInvalidValue;
  mappings.erase(begin, end);
  return place_at(address, bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}
CUDA(cuMemAllocManaged, std::uint64_t* address, std::size_t bytes, unsigned) {
  MAY_FAIL;
  void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *address = reinterpret_cast<std::uintptr_t>(got);
  if (got == MAP_FAILED) return kOutOfMemory;
  fake::managed(*address, bytes);
  return kSuccess;
}
CUDA(cuMemFree_v2, std::uint64_t) { return kSuccess; }
// Which driver it is (tests/CMakeLists.txt): one as of CUDA 12.2, an older one, or one that has
// none of these calls.
#if SENTINEL_FAKE_CUDA_PLACES == 2
struct Location {
  int type, id;
};
constexpr int kDevice = 1, kHost = 2;
CUDA(cuMemAdvise_v2, std::uint64_t, std::size_t, int, Location place) {
  MAY_FAIL;
  return place.type == kHost || (place.type == kDevice && place.id == 0) ? kSuccess : kInvalidValue;
}
CUDA(cuMemPrefetchAsync_v2, std::uint64_t address, std::size_t bytes, Location place,
     unsigned flags, void*) {
  MAY_FAIL;
  if (flags != 0 || (place.type != kHost && (place.type != kDevice || place.id != 0)))
    return kInvalidValue;
  fake::moved(address, bytes, place.type == kDevice);
  return kSuccess;
}
#elif SENTINEL_FAKE_CUDA_PLACES == 1
CUDA(cuMemAdvise, std::uint64_t, std::size_t, int, int place) {
  MAY_FAIL;
  return place == 0 || place == -1 ? kSuccess : kInvalidValue;
}
CUDA(cuMemPrefetchAsync, std::uint64_t address, std::size_t bytes, int place, void*) {
  MAY_FAIL;
  if (place != 0 && place != -1) return kInvalidValue;
  fake::moved(address, bytes, place == 0);
  return kSuccess;
}
#endif
CUDA(cuMemHostAlloc, void** memory, std::size_t bytes, unsigned) {
  MAY_FAIL;
  *memory = std::aligned_alloc(4096, bytes);
  return *memory != nullptr ? kSuccess : kOutOfMemory;
}
CUDA(cuMemFreeHost, void* memory) {
  std::free(memory);
  return kSuccess;
}
CUDA(cuMemcpyAsync, std::uint64_t to, std::uint64_t from, std::size_t bytes, void*) {
  MAY_FAIL;
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return kSuccess;
}
CUDA(cuStreamCreate, void** stream, unsigned) {
  *stream = new char;
  return kSuccess;
}
CUDA(cuStreamDestroy_v2, void* stream) {
  delete static_cast<char*>(stream);
  return kSuccess;
}
CUDA(cuStreamWaitEvent, void*, void*, unsigned) { return kSuccess; }
CUDA(cuEventCreate, void** event, unsigned) {
  *event = new char;
  return kSuccess;
}
CUDA(cuEventDestroy_v2, void* event) {
  delete static_cast<char*>(event);
  return kSuccess;
}
CUDA(cuEventRecord, void*, void*) { return kSuccess; }
CUDA(cuEventQuery, void*) { return kSuccess; }
CUDA(cuEventSynchronize, void*) {
  MAY_FAIL;
  return kSuccess;
}

// ---------------------------------------------------------------- cuFile

struct CuFileStatus {
  int cufile, cuda;
};
struct CuFileDescription {
  int type;
  union {
    int descriptor;
    void* windows;
  } file;
};
constexpr int kIoNotSupported = 5008, kAlreadyOpen = 5026;

#define CUFILE(result, name, ...)                                             \
  extern "C" __attribute__((visibility("default"))) result name(__VA_ARGS__); \
  extern "C" result name(__VA_ARGS__)

CUFILE(CuFileStatus, cuFileDriverOpen, ) {
  static std::atomic<bool> opened = false;
  return {opened.exchange(true) ? kAlreadyOpen : 0, 0};
}
CUFILE(CuFileStatus, cuFileHandleRegister, void** handle, const CuFileDescription* file) {
  if (fails(__func__)) return {kIoNotSupported, 0};
  if (const int code = fake::refusal(file->file.descriptor); code != 0) return {code, 0};
  *handle = new int(file->file.descriptor);
  return {};
}
CUFILE(void, cuFileHandleDeregister, void* handle) { delete static_cast<int*>(handle); }
CUFILE(ssize_t, cuFileRead, void* handle, void* device, std::size_t bytes, off_t at, off_t within) {
  if (fails(__func__)) return -kIoNotSupported;
  return pread(*static_cast<int*>(handle), static_cast<char*>(device) + within, bytes, at);
}
CUFILE(ssize_t, cuFileWrite, void* handle, const void* device, std::size_t bytes, off_t at,
       off_t within) {
  if (fails(__func__)) return errno = ENOSPC, -1;
  return pwrite(*static_cast<int*>(handle), static_cast<const char*>(device) + within, bytes, at);
}
