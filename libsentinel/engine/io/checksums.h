// Checksums of what lies in the slots of a slow file, so that bytes which come back differ from
// those that were written in no step unnoticed: another process may have written to the file, or
// truncated it, and a drive may return other bytes than it was given.
//
// One sum for every 32 KiB, the least that is read at once. `full` covers every byte; `sampled`
// covers 64 bytes of every 4 KiB, so it notices a block that was swapped or zeroed, and one flipped
// bit in 64. The hash is XXH3 with 64 bits: it is as fast as reading from memory, and two different
// contents have the same sum with a probability of 2^-64. It is no protection against somebody who
// may write to this process's memory.
//
// Lock-free: a slot's sums are taken between its reservation and its write, and compared while it
// is reserved; a comparison of a slot that is somebody else's meanwhile says nothing. Nothing here
// allocates or fails; a forked child compares with its own copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace sentinel {

enum class ChecksumLevel : std::uint8_t { off, sampled, full };
ChecksumLevel parse_checksum_level(const std::string&);  // off, sampled, full; throws Error

// Of all bytes of a frame, XXH3 with 128 bits and a seed of this process: two different contents
// have the same one with a probability of 2^-128.
struct Digest {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Digest&) const = default;
};

class Checksums {
 public:
  static constexpr std::uint64_t kBytes = 32u << 10;
  static constexpr std::uint64_t kMostBytes = 16ull << 40;  // of the files

  // Throws Error where there are no addresses for the sums: 4 GiB of them, used as slots are. Where
  // this process's limits leave a small arena only, fewer: the files hold 64 times as much then.
  Checksums(ChecksumLevel, std::uint64_t frame_bytes);
  ~Checksums();
  Checksums(const Checksums&) = delete;
  Checksums& operator=(const Checksums&) = delete;

  ChecksumLevel level() const { return level_; }
  // How long sums and digests have taken until now, in all threads together.
  double spent_us() const {
    return static_cast<double>(spent_ns_.load(std::memory_order_relaxed)) / 1e3;
  }
  std::int64_t most_slots() const { return static_cast<std::int64_t>(most_bytes_ / frame_bytes_); }

  // Of a whole frame that is about to be written to the slot. Nobody writes to it meanwhile.
  void take(std::int64_t slot, const void* frame) noexcept;
  // Whether these bytes are those at `first` in the frame that the slot's sums are of. `first` is a
  // multiple of kBytes; `bytes` is one, too, or reaches to the frame's end.
  bool match(std::int64_t slot, std::uint64_t first, const void* bytes,
             std::uint64_t count) const noexcept;
  // Of a whole frame, at every level. Nobody writes to it meanwhile.
  Digest digest(const void* frame) const noexcept;

 private:
  // Of the first kBytes of what is left, or all of it.
  std::uint64_t sum(const char* bytes, std::uint64_t left) const noexcept;
  std::uint64_t table_bytes() const;
  std::uint64_t* sums(std::int64_t slot) const noexcept {
    return table_ + static_cast<std::uint64_t>(slot) * per_slot_;
  }

  ChecksumLevel level_;
  const std::uint64_t seed_;  // of digests
  std::uint64_t most_bytes_, frame_bytes_, per_slot_;
  mutable std::atomic<std::uint64_t> spent_ns_{0};
  std::uint64_t* table_ = nullptr;  // zero pages until they are used
};

}  // namespace sentinel
