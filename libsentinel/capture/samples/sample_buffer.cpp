// Reads records from a perf ring, across its end where they wrap, and skips what was lost.
#include "capture/samples/sample_buffer.h"

#include <algorithm>
#include <cstring>

namespace sentinel {
namespace {

using Kind = SampleRecord::Kind;

// PERF_RECORD_LOST names the event before the number, PERF_RECORD_LOST_SAMPLES does not.
constexpr std::size_t kLostAt = 8, kLostSamplesAt = 0;

}  // namespace

SampledAccess access_of(std::uint64_t data_src) noexcept {
  const perf_mem_data_src source{.val = data_src};
  if (source.mem_op & PERF_MEM_OP_STORE) return SampledAccess::write;
  const bool no_data = source.mem_op & (PERF_MEM_OP_PFETCH | PERF_MEM_OP_EXEC);
  return no_data && !(source.mem_op & PERF_MEM_OP_LOAD) ? SampledAccess::none : SampledAccess::read;
}

bool SampleReader::next(SampleRecord& record) noexcept {
  if (tail_ == head_) return false;
  perf_event_header header;
  const std::uint64_t left = head_ - tail_;
  if (left > ring_.size() || left < sizeof header) return record = give_up(), true;
  copy(&header, tail_, sizeof header);
  if (header.size < sizeof header || header.size % 8 != 0 || header.size > left)
    return record = give_up(), true;
  record = read(header);
  tail_ += header.size;
  return true;
}

SampleRecord SampleReader::read(const perf_event_header& header) const noexcept {
  const std::uint64_t body = tail_ + sizeof header;
  const std::size_t bytes = header.size - sizeof header;
  const auto lost_at = [&](std::size_t at) -> SampleRecord {
    std::uint64_t lost = 0;
    if (bytes < at + sizeof lost) return {.kind = Kind::damaged, .lost = 1};
    copy(&lost, body + at, sizeof lost);
    return {.kind = Kind::lost, .lost = lost};
  };
  switch (header.type) {
    case PERF_RECORD_SAMPLE: {
      SampleRecord record{.kind = Kind::sample};
      if (header.size < kSampleBytes) return {.kind = Kind::damaged, .lost = 1};
      copy(&record.sample, body, sizeof record.sample);
      return record;
    }
    case PERF_RECORD_LOST:
      return lost_at(kLostAt);
    case PERF_RECORD_LOST_SAMPLES:
      return lost_at(kLostSamplesAt);
    case PERF_RECORD_THROTTLE:
      return {.kind = Kind::throttled};
    default:
      return {.kind = Kind::other};
  }
}

// Where the next record begins is not known any more.
SampleRecord SampleReader::give_up() noexcept {
  const std::uint64_t bytes = std::min<std::uint64_t>(head_ - tail_, ring_.size());
  tail_ = head_;
  return {.kind = Kind::damaged, .lost = std::max<std::uint64_t>(1, bytes / kSampleBytes)};
}

// Records may go round the ring's end.
void SampleReader::copy(void* to, std::uint64_t from, std::size_t bytes) const noexcept {
  const std::size_t at = from % ring_.size();
  const std::size_t first = std::min(bytes, ring_.size() - at);
  std::memcpy(to, ring_.data() + at, first);
  std::memcpy(static_cast<std::byte*>(to) + first, ring_.data(), bytes - first);
}

}  // namespace sentinel
