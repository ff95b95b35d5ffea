// A CUDA driver's library, and cuFile's (CUPTI's: fake_cupti.cpp), as far as libsentinel uses one:
// a device's memory is a file in memory that is mapped where the program asks for it, so that a
// touch of what is not mapped ends the program, as it would on a device. Streams run at once;
// fake_gpu.h has those that do not. There are two devices. What has a context is asked in it, and
// is refused elsewhere.
//
// SENTINEL_FAKE_CUDA_BYTES: what each device has (16 GiB). SENTINEL_FAKE_CUDA_APART: neither
// reaches the other's memory. SENTINEL_FAKE_CUDA_UNMAPS_ONE: a call unmaps one mapping, and no
// neighbours with it. SENTINEL_FAKE_CUDA_FAIL=cuMemMap:10: the tenth call of that name is refused,
// since the variable was last another.
// SENTINEL_FAKE_CUDA_PAGEABLE: hmm or ats, how the device's kernels, which are the processor's,
// reach pageable memory; else they are said not to.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unit/engine/gpu/fake_faults.h"
#include "unit/engine/gpu/fake_files.h"

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101,
              kInvalidContext = 201, kIllegalAddress = 700;
constexpr std::uint64_t kUnit = 2u << 20;
constexpr int kDevices = 2;

struct Location {
  int type, id;
};
constexpr int kDevice = 1, kHost = 2;

struct Chunk {
  std::uint64_t bytes;
  bool fresh = true;
};

struct Mapping {
  std::uint64_t handle, bytes;
  std::set<int> devices;  // that may use it
};

// A device, which is its primary context, too.
struct Card {
  int file = -1;
  std::map<std::uint64_t, Chunk> chunks;  // by place in the file, in units, and one more
  std::map<std::uintptr_t, std::uint64_t> plain;
  bool computes = false, held = false;
};
// Of one that is recorded: of all that the device was given.
struct Event {
  Card* of = nullptr;
};

std::mutex lock;
// Never destroyed: threads go on with them while the process ends.
auto& changed = *new std::condition_variable_any;
auto& cards = *new std::array<Card, kDevices>;
auto& mappings = *new std::map<std::uintptr_t, Mapping>;
thread_local std::vector<Card*> contexts;

constexpr int kHandleBits = 32;  // above: the device
Card& card_of(std::uint64_t handle) { return cards[handle >> kHandleBits]; }
std::uint64_t place_of(std::uint64_t handle) { return handle & ((1ull << kHandleBits) - 1); }
Chunk* chunk_of(std::uint64_t handle) {
  if (handle >> kHandleBits >= kDevices) return nullptr;
  auto& chunks = card_of(handle).chunks;
  const auto at = chunks.find(place_of(handle));
  return at != chunks.end() ? &at->second : nullptr;
}

std::uint64_t capacity() {
  const char* bytes = std::getenv("SENTINEL_FAKE_CUDA_BYTES");
  return bytes != nullptr ? std::stoull(bytes) : 16ull << 30;
}

std::uint64_t used(const Card& card) {
  std::uint64_t sum = 0;
  for (const auto& [place, chunk] : card.chunks) sum += chunk.bytes;
  for (const auto& [address, bytes] : card.plain) sum += bytes;
  return sum;
}

bool fails(const char* call) {
  static std::mutex counting;
  static auto& last = *new std::string;
  static int calls;
  const char* asked = std::getenv("SENTINEL_FAKE_CUDA_FAIL");
  const std::string text = asked != nullptr ? asked : "";
  const std::lock_guard guard(counting);
  if (std::exchange(last, text) != text) calls = 0;
  if (text.empty()) return false;
  const auto colon = text.find(':');
  return text.substr(0, colon) == call && ++calls == std::stoi(text.substr(colon + 1));
}

// The thread sanitizer's memcpy() looks at each word: minutes a test. What moves in granules is
// copied by the C library's own.
void device_copies(void* to, const void* from, std::size_t bytes) {
#ifdef __SANITIZE_THREAD__
  static const auto copy = reinterpret_cast<void* (*)(void*, const void*, std::size_t)>(
      dlsym(dlopen("libc.so.6", RTLD_LAZY), "memcpy"));
  if (bytes >= 65536) {
    copy(to, from, bytes);
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

// Until it has computed all that it was given.
void wait_for(Card& card) {
  std::unique_lock guard(lock);
  changed.wait(guard, [&] { return !card.held; });
  card.computes = false;
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
#define IN_CONTEXT \
  if (contexts.empty()) return kInvalidContext

CUDA(cuInit, unsigned) {
  MAY_FAIL;
  const std::lock_guard guard(lock);
  for (Card& card : cards) {
    if (card.file < 0) card.file = memfd_create("device", MFD_CLOEXEC);
    if (card.file < 0 || ftruncate64(card.file, static_cast<off_t>(capacity())) != 0)
      return kOutOfMemory;
  }
  return kSuccess;
}
CUDA(cuGetErrorName, int code, const char** name) {
  *name = code == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == kOutOfMemory  ? "CUDA_ERROR_OUT_OF_MEMORY"
                                  : "CUDA_ERROR_INVALID_VALUE";
  return kSuccess;
}
CUDA(cuDeviceGet, int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < kDevices ? kSuccess : kInvalidDevice;
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
CUDA(cuDevicePrimaryCtxRetain, void** context, int device) {
  MAY_FAIL;
  *context = &cards[device];
  return kSuccess;
}
CUDA(cuDevicePrimaryCtxRelease_v2, int) { return kSuccess; }
CUDA(cuCtxPushCurrent_v2, void* context) {
  MAY_FAIL;
  contexts.push_back(static_cast<Card*>(context));
  return kSuccess;
}
CUDA(cuCtxPopCurrent_v2, void** context) {
  IN_CONTEXT;
  *context = contexts.back();
  contexts.pop_back();
  return kSuccess;
}
CUDA(cuCtxSynchronize, ) {
  MAY_FAIL;
  IN_CONTEXT;
  wait_for(*contexts.back());
  return kSuccess;
}
CUDA(cuDeviceCanAccessPeer, int* can, int device, int peer) {
  MAY_FAIL;
  *can = device != peer && std::getenv("SENTINEL_FAKE_CUDA_APART") == nullptr;
  return kSuccess;
}
CUDA(cuMemGetInfo_v2, std::size_t* free, std::size_t* total) {
  IN_CONTEXT;
  const std::lock_guard guard(lock);
  *total = capacity();
  *free = capacity() - used(*contexts.back());
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
  constexpr std::size_t kLocation = 8, kDirectRdma = 25;
  MAY_FAIL;
  const auto* asked = static_cast<const unsigned char*>(properties);
  if (asked[kDirectRdma] != 0) return kInvalidValue;
  Location location;
  std::memcpy(&location, asked + kLocation, sizeof location);
  if (location.type != kDevice || location.id < 0 || location.id >= kDevices) return kInvalidValue;
  const std::lock_guard guard(lock);
  auto& chunks = cards[location.id].chunks;
  std::uint64_t place = 0;  // the first gap that is large enough
  for (const auto& [other, chunk] : chunks) {
    if ((other - 1) * kUnit - place >= bytes) break;
    place = (other - 1) * kUnit + chunk.bytes;
  }
  if (place + bytes > capacity() || used(cards[location.id]) + bytes > capacity())
    return kOutOfMemory;
  chunks[place / kUnit + 1] = {bytes};
  *handle = (static_cast<std::uint64_t>(location.id) << kHandleBits) + place / kUnit + 1;
  return kSuccess;
}
CUDA(cuMemRelease, std::uint64_t handle) {
  const std::lock_guard guard(lock);
  const auto* chunk = chunk_of(handle);
  if (chunk == nullptr) return kInvalidValue;
  fallocate64(card_of(handle).file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>((place_of(handle) - 1) * kUnit), static_cast<off_t>(chunk->bytes));
  card_of(handle).chunks.erase(place_of(handle));
  return kSuccess;
}
CUDA(cuMemMap, std::uint64_t address, std::size_t bytes, std::size_t, std::uint64_t handle,
     std::uint64_t) {
  MAY_FAIL;
  const std::lock_guard guard(lock);
  if (mappings.contains(address) || chunk_of(handle) == nullptr) return kInvalidValue;
  mappings[address] = {handle, bytes, {}};
  return place_at(address, bytes, MAP_SHARED | MAP_FIXED, card_of(handle).file,
                  static_cast<off_t>((place_of(handle) - 1) * kUnit));
}
struct Access {
  Location location;
  int flags;
};
// Of what is mapped there, one beside the other. What is new holds nothing to rely on.
CUDA(cuMemSetAccess, std::uint64_t address, std::size_t bytes, const Access* accesses,
     std::size_t count) {
  MAY_FAIL;
  const std::lock_guard guard(lock);
  for (const auto end = address + bytes; address < end;) {
    const auto at = mappings.find(address);
    if (at == mappings.end()) return kInvalidValue;
    auto& chunk = *chunk_of(at->second.handle);
    for (std::size_t i = 0; i < count; ++i) at->second.devices.insert(accesses[i].location.id);
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
  if (std::getenv("SENTINEL_FAKE_CUDA_UNMAPS_ONE") != nullptr && begin->second.bytes != bytes)
    return kInvalidValue;
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
CUDA(cuMemAlloc_v2, std::uint64_t* address, std::size_t bytes) {
  MAY_FAIL;
  IN_CONTEXT;
  const std::lock_guard guard(lock);
  auto& card = *contexts.back();
  if (bytes == 0) return kInvalidValue;
  if (used(card) + bytes > capacity()) return kOutOfMemory;
  void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return kOutOfMemory;
  std::memset(got, 0xa5, bytes);
  *address = reinterpret_cast<std::uintptr_t>(got);
  card.plain[*address] = bytes;
  return kSuccess;
}
// A device waits by itself here for what it was given; this one tells who has not waited. Of
// managed memory nothing is given back.
CUDA(cuMemFree_v2, std::uint64_t address) {
  MAY_FAIL;
  IN_CONTEXT;
  const std::lock_guard guard(lock);
  for (Card& card : cards)
    if (const auto at = card.plain.find(address); at != card.plain.end()) {
      if (&card != contexts.back()) return kInvalidContext;
      if (card.computes) return kIllegalAddress;
      munmap(reinterpret_cast<void*>(address), at->second);
      card.plain.erase(at);
    }
  return kSuccess;
}
// What tests ask and say: a kernel is launched on a device, and runs until somebody waits; or until
// it is told to end, too; whether a device reaches the address; the device whose context is the
// thread's, or -1.
CUDA(fake_cuda_launch, int device) {
  const std::lock_guard guard(lock);
  cards[device].computes = true;
  return kSuccess;
}
CUDA(fake_cuda_hold, int device, int hold) {
  const std::lock_guard guard(lock);
  cards[device].held = hold != 0;
  changed.notify_all();
  return kSuccess;
}
CUDA(fake_cuda_reaches, int device, std::uint64_t address) {
  const std::lock_guard guard(lock);
  const auto after = mappings.upper_bound(address);
  if (after == mappings.begin()) return 0;
  const auto& [begin, mapping] = *std::prev(after);
  return address - begin < chunk_of(mapping.handle)->bytes && mapping.devices.contains(device);
}
CUDA(fake_cuda_context, ) {
  return contexts.empty() ? -1 : static_cast<int>(contexts.back() - cards.data());
}
// Which driver it is (tests/CMakeLists.txt): one as of CUDA 12.5, one before 12.2, or one that has
// none of these calls.
#if SENTINEL_FAKE_CUDA_PLACES == 2
CUDA(cuCtxRecordEvent, void* context, Event* event) {
  MAY_FAIL;
  IN_CONTEXT;
  if (context != contexts.back()) return kInvalidValue;
  event->of = contexts.back();
  return kSuccess;
}
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
  device_copies(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
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
  *event = new Event;
  return kSuccess;
}
CUDA(cuEventDestroy_v2, Event* event) {
  delete event;
  return kSuccess;
}
CUDA(cuEventRecord, void*, void*) { return kSuccess; }
CUDA(cuEventQuery, void*) { return kSuccess; }
CUDA(cuEventSynchronize, Event* event) {
  MAY_FAIL;
  if (event->of != nullptr) wait_for(*event->of);
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
