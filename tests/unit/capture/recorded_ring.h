// A buffer of samples as the kernel would have left it, in ordinary memory: written record by
// record, or taken from bytes.
#pragma once

#include <unistd.h>

#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "capture/samples/sample_buffer.h"

namespace sentinel {

// Data sources as processors report them; perf prints them with --dump-raw-trace.
constexpr std::uint64_t kPebsLoadL1 = 0x68100142;      // load, L1 hit, no snoop, TLB hit
constexpr std::uint64_t kPebsLoadRam = 0x6a100842;     // load, local RAM; locked
constexpr std::uint64_t kPebsStoreL1 = 0x5080144;      // store, L1 hit, the rest not available
constexpr std::uint64_t kPebsStoreMiss = 0x5080184;    // store, L1 miss
constexpr std::uint64_t kIbsLoadL2 = 0x429080442;      // load, L2 hit, TLB hit
constexpr std::uint64_t kIbsStore = 0x229080144;       // store, L1 hit, TLB hit
constexpr std::uint64_t kNotAvailable = 0x1e05080021;  // PERF_MEM_NA: an op without memory

class RecordedRing {
 public:
  explicit RecordedRing(std::size_t bytes = 1 << 16, std::uint64_t position = 0)
      : ring_bytes_(bytes), words_((SampleRing::kHeader + bytes) / 8) {
    page().data_head = page().data_tail = position;
  }

  // A record: type, misc and size in the first word.
  void append(std::uint32_t type, std::initializer_list<std::uint64_t> body) {
    const std::uint64_t size = 8 * (1 + body.size());
    put(type | std::uint64_t{2} << 32 | size << 48);
    for (const std::uint64_t word : body) put(word);
  }
  void sample(std::uint64_t address, std::uint64_t data_src, std::uint32_t pid = getpid(),
              std::uint32_t tid = 1) {
    append(PERF_RECORD_SAMPLE, {pid | std::uint64_t{tid} << 32, address, data_src});
  }
  void lost(std::uint64_t samples) { append(PERF_RECORD_LOST, {1, samples}); }
  void throttle() { append(PERF_RECORD_THROTTLE, {1, 1, 1}); }
  void put(std::uint64_t word) {
    words_[(SampleRing::kHeader + page().data_head % ring_bytes_) / 8] = word;
    page().data_head += 8;
  }

  perf_event_mmap_page& page() { return *reinterpret_cast<perf_event_mmap_page*>(words_.data()); }
  std::span<std::uint64_t> ring() { return std::span(words_).subspan(SampleRing::kHeader / 8); }
  SampleRing view() { return {words_.data(), ring_bytes_}; }
  std::vector<SampleRecord> records() {
    std::vector<SampleRecord> all;
    view().take([&](const SampleRecord& record) { all.push_back(record); });
    return all;
  }

 private:
  std::size_t ring_bytes_;
  std::vector<std::uint64_t> words_;
};

}  // namespace sentinel
