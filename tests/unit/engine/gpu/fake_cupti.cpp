// CUPTI as far as libsentinel uses it, for fake_cuda.cpp's device: its page faults are the
// processor's, caught by their signal.
//
// SENTINEL_FAKE_CUPTI_FAIL=cuptiActivityEnable:35: that call answers 35; with :35:8 it does so from
// its ninth time on (the first since the variable was last another).
// SENTINEL_FAKE_CUPTI_RECORD: bytes of a record (104 as in CUDA 13; 64 as before).
// SENTINEL_FAKE_CUPTI_DROPPED: so many records are dropped before the first.
// SENTINEL_FAKE_CUPTI_ALONG: pages that come with one that is touched, itself included (1).
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "unit/engine/gpu/fake_faults.h"

namespace {

constexpr int kSuccess = 0, kMaxLimitReached = 12;
constexpr int kUnifiedMemoryCounter = 25, kGpuPageFault = 4, kCpuPageFault = 3;
constexpr std::uintptr_t kPage = 4096;
constexpr std::uint32_t kStream = 7;  // whose buffers it gives back, of a context of its own

struct Fault {
  std::uintptr_t address;
  bool write;
};

std::mutex lock;                                 // of the ranges, outside the signal's handler
std::map<std::uintptr_t, std::uint64_t> ranges;  // managed
std::array<Fault, 1u << 18> faults;
std::atomic<std::size_t> count = 0, dropped = 0;
std::atomic<bool> watching = false, configured = false;
std::uintptr_t along = 1;  // pages
struct sigaction before;

using Requested = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using Completed = void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);
Requested requested = nullptr;
Completed completed = nullptr;

std::size_t number(const char* variable, std::size_t otherwise) {
  const char* set = std::getenv(variable);
  return set != nullptr ? std::stoul(set) : otherwise;
}

int failure(const char* call) {
  const char* asked = std::getenv("SENTINEL_FAKE_CUPTI_FAIL");
  if (asked == nullptr) return kSuccess;
  static std::string last;
  static std::size_t calls;
  if (std::exchange(last, asked) != asked) calls = 0;
  const auto colon = last.find(':'), second = last.find(':', colon + 1);
  if (last.substr(0, colon) != call) return kSuccess;
  if (second != last.npos && calls++ < std::stoul(last.substr(second + 1))) return kSuccess;
  return std::stoi(last.substr(colon + 1));
}

const std::pair<const std::uintptr_t, std::uint64_t>* range_of(std::uintptr_t address) {
  auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return nullptr;
  --after;
  return address - after->first < after->second ? &*after : nullptr;
}

bool is_write(const void* context) {
#if defined(__x86_64__)
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  return context == nullptr;
#endif
}

// What is not ours, or is touched a second time where nothing bars it, is the program's fault.
void touched(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const auto* range = range_of(address);
  if (range == nullptr || !watching) {
    sigaction(signal, &before, nullptr);
    return;
  }
  const auto group = along * kPage;
  const auto begin = std::max(range->first, address / group * group);
  const auto end = std::min(range->first + range->second, address / group * group + group);
  mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE);
  if (const auto at = count++; at < faults.size())
    faults[at] = {address / kPage * kPage, is_write(context)};
  else
    ++dropped;
}

// Beside a counter of another kind, as CUPTI's buffers hold.
std::size_t fill(std::uint8_t* buffer, std::size_t bytes, std::size_t& next) {
  const auto record = number("SENTINEL_FAKE_CUPTI_RECORD", 104);
  std::size_t valid = 0;
  const auto put = [&](int counter, const Fault& fault) {
    std::memset(buffer + valid, 0, record);
    const auto word = [&](std::size_t at, auto value) {
      std::memcpy(buffer + valid + at, &value, sizeof value);
    };
    word(0, kUnifiedMemoryCounter);
    word(4, counter);
    word(8, std::uint64_t{1});
    word(32, std::uint64_t{fault.address});
    word(56, std::uint32_t{fault.write ? 2u : 1u});
    valid += record;
  };
  const auto end = std::min(count.load(), faults.size());
  put(kCpuPageFault, {next < end ? faults[next].address : 0, false});
  for (; next < end && valid + record <= bytes; ++next) put(kGpuPageFault, faults[next]);
  return valid;
}

}  // namespace

void fake::managed(std::uintptr_t begin, std::uint64_t bytes) {
  const std::lock_guard guard(lock);
  ranges[begin] = bytes;
}

void fake::moved(std::uintptr_t begin, std::uint64_t bytes, bool to_device) {
  if (!watching) return;
  mprotect(reinterpret_cast<void*>(begin), bytes, to_device ? PROT_READ | PROT_WRITE : PROT_NONE);
}

#define CUPTI(name, ...)                                                   \
  extern "C" __attribute__((visibility("default"))) int name(__VA_ARGS__); \
  extern "C" int name(__VA_ARGS__)
#define MAY_FAIL \
  if (const int code = failure(__func__); code != kSuccess) return code

CUPTI(cuptiGetResultString, int code, const char** name) {
  *name = code == 35   ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
          : code == 28 ? "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED"
                       : "CUPTI_ERROR_UNKNOWN";
  return kSuccess;
}
CUPTI(cuptiActivityRegisterCallbacks, Requested for_buffers, Completed with_records) {
  MAY_FAIL;
  requested = for_buffers;
  completed = with_records;
  return kSuccess;
}
CUPTI(cuptiActivityConfigureUnifiedMemoryCounter, const int* config, std::uint32_t configs) {
  MAY_FAIL;
  configured = configs == 1 && config[1] == kGpuPageFault && config[3] == 1;
  return configured ? kSuccess : 1;
}
CUPTI(cuptiActivityEnable, int kind) {
  MAY_FAIL;
  if (kind != kUnifiedMemoryCounter || !configured) return 1;
  along = number("SENTINEL_FAKE_CUPTI_ALONG", 1);
  struct sigaction action = {};
  action.sa_sigaction = &touched;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &before);
  count = 0;
  dropped = number("SENTINEL_FAKE_CUPTI_DROPPED", 0);
  watching = true;
  return kSuccess;
}
CUPTI(cuptiActivityDisable, int) {
  if (!watching) return kSuccess;
  const std::lock_guard guard(lock);
  for (const auto& [begin, bytes] : ranges) fake::moved(begin, bytes, true);
  watching = false;
  sigaction(SIGSEGV, &before, nullptr);
  return kSuccess;
}
CUPTI(cuptiActivityFlushAll, std::uint32_t) {
  MAY_FAIL;
  for (std::size_t next = 0; next < std::min(count.load(), faults.size());) {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 0, most = 0;
    requested(&buffer, &bytes, &most);
    if (buffer == nullptr) return kSuccess;
    completed(&ranges, kStream, buffer, bytes, fill(buffer, bytes, next));
  }
  count = 0;
  return kSuccess;
}
CUPTI(cuptiActivityGetNextRecord, std::uint8_t* buffer, std::size_t valid, std::uint8_t** record) {
  *record = *record == nullptr ? buffer : *record + number("SENTINEL_FAKE_CUPTI_RECORD", 104);
  return *record < buffer + valid ? kSuccess : kMaxLimitReached;
}
CUPTI(cuptiActivityGetNumDroppedRecords, void* context, std::uint32_t stream,
      std::size_t* records) {
  if (context != &ranges || stream != kStream) return 1;
  *records = dropped.exchange(0);
  return kSuccess;
}
