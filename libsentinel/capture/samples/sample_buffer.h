// The buffer in which perf_event_open leaves samples: a page of positions, then a ring of records.
// The ring is taken for bytes of any origin: whatever they are, reading ends, stays within them,
// and tells how much could not be read.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace sentinel {

// perf_event_attr::sample_type of what is read here. A record as it lies in the ring:
//
//   u32 type | u16 misc | u16 size | u32 pid | u32 tid | u64 address | u64 data_src
constexpr std::uint64_t kSampleType = PERF_SAMPLE_TID | PERF_SAMPLE_ADDR | PERF_SAMPLE_DATA_SRC;
constexpr std::size_t kSampleBytes = 32;

struct Sample {
  std::uint32_t pid = 0, tid = 0;
  std::uint64_t address = 0;
  std::uint64_t data_src = 0;  // PERF_MEM_*
};

struct SampleRecord {
  enum class Kind { sample, lost, throttled, other, damaged };
  Kind kind = Kind::other;
  Sample sample;
  std::uint64_t lost = 0;  // samples that were lost; for damage, that had room in it
};

enum class SampledAccess { read, write, none };
// `none`: a prefetch or a fetch of code. Unknown ones are reads.
SampledAccess access_of(std::uint64_t data_src) noexcept;

// The records from position `tail` to `head`, which count bytes since the ring was made.
class SampleReader {
 public:
  SampleReader(std::span<const std::byte> ring, std::uint64_t tail, std::uint64_t head) noexcept
      : ring_(ring), tail_(tail), head_(head) {}
  bool next(SampleRecord&) noexcept;  // false at the end

 private:
  void copy(void* to, std::uint64_t from, std::size_t bytes) const noexcept;
  SampleRecord read(const perf_event_header&) const noexcept;
  SampleRecord give_up() noexcept;

  std::span<const std::byte> ring_;
  std::uint64_t tail_, head_;
};

// A mapped buffer, which it does not own.
class SampleRing {
 public:
  static constexpr std::size_t kHeader = 4096;
  SampleRing(void* mapping, std::size_t ring_bytes) noexcept
      : page_(static_cast<perf_event_mmap_page*>(mapping)),
        ring_(static_cast<const std::byte*>(mapping) + kHeader, ring_bytes) {}

  // Visits each record that is there and gives its room back to the kernel.
  template <class Visit>
  void take(Visit visit) const noexcept {
    const std::uint64_t head = __atomic_load_n(&page_->data_head, __ATOMIC_ACQUIRE);
    SampleReader reader(ring_, page_->data_tail, head);
    for (SampleRecord record; reader.next(record);) visit(record);
    __atomic_store_n(&page_->data_tail, head, __ATOMIC_RELEASE);
  }

 private:
  perf_event_mmap_page* page_;
  std::span<const std::byte> ring_;
};

}  // namespace sentinel
