// CUPTI's records of page faults in managed memory, loaded at run time: the functions and
// structures that are used are declared here as its ABI has had them since CUDA 7.0. What CUDA 13
// appended to a record is not read. Not run on a device yet.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#include "engine/gpu/page_faults.h"
#include "sentinel/error.h"

namespace sentinel::gpu {
namespace {

using Result = int;
using Context = void*;

constexpr Result kSuccess = 0;
constexpr int kUnifiedMemoryCounter = 25;  // CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER
constexpr int kGpuPageFault = 4;  // CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT
constexpr std::size_t kBufferBytes = 1u << 20, kBufferAlignment = 8;

struct Config {
  int scope = 1;  // CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_SINGLE_DEVICE
  int kind = kGpuPageFault;
  std::uint32_t device = 0;
  std::uint32_t enable = 1;
};
// CUpti_ActivityUnifiedMemoryCounter2, and what a later one begins with.
struct Record {
  int kind;
  int counter;
  std::uint64_t value, start, end, address;
  std::uint32_t source, destination, stream, process;
  std::uint32_t access;
  std::uint32_t reserved;
};
static_assert(sizeof(Config) == 16 && sizeof(Record) == 64 && offsetof(Record, address) == 32 &&
              offsetof(Record, access) == 56);
enum Access : std::uint32_t { kRead = 1, kWrite, kAtomic, kPrefetch };

using Requested = void (*)(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records);
using Completed = void (*)(Context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes,
                           std::size_t valid);

// X(name in the library, arguments)
#define SENTINEL_CUPTI_CALLS(X)                                               \
  X(cuptiGetResultString, (Result, const char**))                             \
  X(cuptiActivityRegisterCallbacks, (Requested, Completed))                   \
  X(cuptiActivityConfigureUnifiedMemoryCounter, (Config*, std::uint32_t))     \
  X(cuptiActivityEnable, (int))                                               \
  X(cuptiActivityDisable, (int))                                              \
  X(cuptiActivityFlushAll, (std::uint32_t))                                   \
  X(cuptiActivityGetNextRecord, (std::uint8_t*, std::size_t, const Record**)) \
  X(cuptiActivityGetNumDroppedRecords, (Context, std::uint32_t, std::size_t*))

struct CuptiCalls {
#define SENTINEL_CUPTI_POINTER(name, arguments) Result(*name) arguments = nullptr;
  SENTINEL_CUPTI_CALLS(SENTINEL_CUPTI_POINTER)
#undef SENTINEL_CUPTI_POINTER
};

// The one that the program has loaded already, else any: PyTorch's packages bring their own.
void* find_library(const std::string& name) {
  for (const int already : {RTLD_NOLOAD, 0})
    for (const char* version : {"", ".13", ".12"})
      if (void* library = dlopen((name + version).c_str(), RTLD_NOW | RTLD_LOCAL | already))
        return library;
  return nullptr;
}

CuptiCalls load(const std::string& name) {
  void* library = find_library(name);
  if (library == nullptr)
    throw Error(fmt::format(
        "NVIDIA's CUPTI is not here: no {}, {}.13 or {}.12; install it (it comes with CUDA), or "
        "name it with SENTINEL_CUPTI",
        name, name, name));
  CuptiCalls calls;
#define SENTINEL_CUPTI_FIND(call, arguments)                                  \
  calls.call = reinterpret_cast<decltype(calls.call)>(dlsym(library, #call)); \
  if (calls.call == nullptr) throw Error(fmt::format("{} has no {}", name, #call));
  SENTINEL_CUPTI_CALLS(SENTINEL_CUPTI_FIND)
#undef SENTINEL_CUPTI_FIND
  return calls;
}

const char* remedy(Result result) {
  constexpr Result kNotSupported = 28, kNotOnDevice = 29, kNotWithoutPeers = 30, kNotWithMps = 31;
  constexpr Result kPrivileges = 35, kSubscribers = 39, kVirtualPrivileges = 40;
  switch (result) {
    case kNotSupported:
    case kNotOnDevice:
      return "this system or device does not tell its page faults";
    case kNotWithoutPeers:
      return "let the program see one GPU alone: CUDA_VISIBLE_DEVICES=0";
    case kNotWithMps:
      return "page faults are not told beside CUDA's multi-process service; end that";
    case kPrivileges:
    case kVirtualPrivileges:
      return "run it as root, or have the administrator load the nvidia module with "
             "NVreg_RestrictProfilingToAdminUsers=0";
    case kSubscribers:
      return "another profiler uses CUPTI in this process; leave it out";
    default:
      return "";
  }
}

// What the callbacks, which have no argument of ours, give to whoever takes it. Never destroyed:
// CUPTI has threads of its own.
struct Inbox {
  std::mutex lock;  // guards all below
  CuptiCalls calls;
  std::vector<PageFault> faults;
  std::uint64_t dropped = 0;
};
Inbox& inbox() {
  static auto* const inbox = new Inbox;
  return *inbox;
}

void requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer != nullptr ? kBufferBytes : 0;  // 0: CUPTI drops records, and counts these
  *most_records = 0;                               // as many as there is room for
}

// Through CUPTI's frames nothing may be thrown.
void completed(Context context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
               std::size_t valid) noexcept {
  Inbox& in = inbox();
  const std::lock_guard guard(in.lock);
  const Record* record = nullptr;
  while (valid != 0 && in.calls.cuptiActivityGetNextRecord(buffer, valid, &record) == kSuccess) {
    const bool fault = record->kind == kUnifiedMemoryCounter && record->counter == kGpuPageFault;
    if (fault && record->access != kPrefetch) try {
        in.faults.push_back(
            {record->address, record->access == kWrite || record->access == kAtomic});
      } catch (const std::bad_alloc&) {
        ++in.dropped;
      }
  }
  std::size_t dropped = 0;
  if (in.calls.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == kSuccess)
    in.dropped += dropped;
  std::free(buffer);
}

class Cupti final : public PageFaults {
 public:
  Cupti(const std::string& library, int device) : calls_(load(library)) {
    {
      const std::lock_guard guard(inbox().lock);
      inbox().calls = calls_;
    }
    check("cuptiActivityRegisterCallbacks",
          calls_.cuptiActivityRegisterCallbacks(&requested, &completed));
    Config config{.device = static_cast<std::uint32_t>(device)};
    check("cuptiActivityConfigureUnifiedMemoryCounter",
          calls_.cuptiActivityConfigureUnifiedMemoryCounter(&config, 1));
    check("cuptiActivityEnable", calls_.cuptiActivityEnable(kUnifiedMemoryCounter));
  }
  ~Cupti() override {  // what is refused now changes no count: all have been taken
    calls_.cuptiActivityDisable(kUnifiedMemoryCounter);
    calls_.cuptiActivityFlushAll(kForced);
    const std::lock_guard guard(inbox().lock);
    inbox().faults.clear();
    inbox().dropped = 0;
  }

  std::uint64_t take(std::vector<PageFault>& out) override {
    check("cuptiActivityFlushAll", calls_.cuptiActivityFlushAll(kForced));
    const std::lock_guard guard(inbox().lock);
    out.insert(out.end(), inbox().faults.begin(), inbox().faults.end());
    inbox().faults.clear();
    return std::exchange(inbox().dropped, 0);
  }

 private:
  static constexpr std::uint32_t kForced = 1;  // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

  void check(const char* call, Result result) const {
    if (result == kSuccess) return;
    const char* name = nullptr;
    calls_.cuptiGetResultString(result, &name);
    const std::string what = remedy(result);
    throw Error(fmt::format("{}: {}{}{}", call,
                            name != nullptr ? name : fmt::format("CUPTI's error {}", result),
                            what.empty() ? "" : "; ", what));
  }

  const CuptiCalls calls_;
};

}  // namespace

bool cupti_is_here(const std::string& library) { return find_library(library) != nullptr; }

std::unique_ptr<PageFaults> open_cupti(const std::string& library, int device) {
  return std::make_unique<Cupti>(library, device);
}

}  // namespace sentinel::gpu
