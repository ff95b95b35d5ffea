// Computes and stores a sum per slot, of all bytes or of samples.
#include "engine/io/checksums.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>

#if __has_include(<xxh_x86dispatch.h>) && !defined(XXH_INLINE_ALL)
#include <xxh_x86dispatch.h>  // AVX2 or AVX-512 where the processor has them
#else
#include <xxhash.h>
#endif

#include "alloc/ranges.h"
#include "base/clock.h"
#include "base/units.h"
#include "engine/host/arena_room.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096, kSample = 64;

// Another line in each page, so that what a page begins with does not stand for all of it.
std::uint64_t sample_at(std::uint64_t page) { return page * 37 % (kPage / kSample) * kSample; }

// Each sample costs a walk through page tables: those of the next sum go on while this one is
// taken.
void fetch_samples(const char* bytes, std::uint64_t count) {
  for (std::uint64_t page = 0; page * kPage < count; ++page)
    __builtin_prefetch(bytes + page * kPage + sample_at(page));
}

class Spent {
 public:
  explicit Spent(std::atomic<std::uint64_t>& ns) : ns_(ns) {}
  ~Spent() {
    const auto spent = std::chrono::nanoseconds(Clock::now() - begin_).count();
    ns_.fetch_add(static_cast<std::uint64_t>(spent), std::memory_order_relaxed);
  }
  Spent(const Spent&) = delete;
  Spent& operator=(const Spent&) = delete;

 private:
  std::atomic<std::uint64_t>& ns_;
  const Clock::time_point begin_ = Clock::now();
};

// The arena of this process may exist already, and what it took is no room any more.
std::uint64_t most_within_limits() {
  constexpr std::uint64_t kArenas = 64, kLeast = 4_GiB;
  const auto room = arena_room();
  if (room.limit.empty() || room.bytes > Checksums::kMostBytes / kArenas)
    return Checksums::kMostBytes;
  return std::max(room.bytes * kArenas, kLeast);
}

}  // namespace

ChecksumLevel parse_checksum_level(const std::string& text) {
  if (text == "off") return ChecksumLevel::off;
  if (text == "sampled") return ChecksumLevel::sampled;
  if (text == "full") return ChecksumLevel::full;
  throw Error(fmt::format("\"{}\" is no level of checksums; known: off, sampled, full", text));
}

Checksums::Checksums(ChecksumLevel level, std::uint64_t frame_bytes)
    : level_(level),
      seed_(std::uint64_t{std::random_device{}()} << 32 | std::random_device{}()),
      most_bytes_(most_within_limits()),
      frame_bytes_(frame_bytes),
      per_slot_((frame_bytes + kBytes - 1) / kBytes) {
  if (level_ != ChecksumLevel::off)
    table_ = reinterpret_cast<std::uint64_t*>(reserve_anonymous(table_bytes(), kPage));
}

std::uint64_t Checksums::table_bytes() const {
  const auto bytes = static_cast<std::uint64_t>(most_slots()) * per_slot_ * sizeof *table_;
  return (bytes + kPage - 1) / kPage * kPage;
}

Checksums::~Checksums() {
  if (table_ != nullptr) munmap(table_, table_bytes());
}

void Checksums::take(std::int64_t slot, const void* frame) noexcept {
  if (level_ == ChecksumLevel::off) return;
  const Spent spent(spent_ns_);
  const auto* bytes = static_cast<const char*>(frame);
  for (std::uint64_t i = 0; i < per_slot_; ++i)
    std::atomic_ref(sums(slot)[i])
        .store(sum(bytes + i * kBytes, frame_bytes_ - i * kBytes), std::memory_order_relaxed);
}

bool Checksums::match(std::int64_t slot, std::uint64_t first, const void* bytes,
                      std::uint64_t count) const noexcept {
  if (level_ == ChecksumLevel::off) return true;
  const Spent spent(spent_ns_);
  const auto* at = static_cast<const char*>(bytes);
  auto* expected = sums(slot) + first / kBytes;
  for (std::uint64_t done = 0; done < count; done += kBytes)
    if (sum(at + done, count - done) !=
        std::atomic_ref(*expected++).load(std::memory_order_relaxed))
      return false;
  return true;
}

Digest Checksums::digest(const void* frame) const noexcept {
  const Spent spent(spent_ns_);
  const auto hash = XXH3_128bits_withSeed(frame, frame_bytes_, seed_);
  return {hash.low64, hash.high64};
}

std::uint64_t Checksums::sum(const char* bytes, std::uint64_t left) const noexcept {
  const auto count = std::min(kBytes, left);
  if (level_ == ChecksumLevel::full) return XXH3_64bits(bytes, count);
  std::array<char, kBytes / kPage * kSample> samples;
  std::uint64_t taken = 0;
  fetch_samples(bytes + count, std::min(kBytes, left - count));
  for (std::uint64_t page = 0; page * kPage < count; ++page, taken += kSample)
    std::memcpy(samples.data() + taken, bytes + page * kPage + sample_at(page), kSample);
  return XXH3_64bits(samples.data(), taken);
}

}  // namespace sentinel
