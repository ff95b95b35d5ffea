// Sums over numbers that a file chose: none may wrap.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace sentinel {

constexpr std::optional<std::uint64_t> checked_sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// The largest number where it would be larger.
constexpr std::uint64_t saturated_sum(std::uint64_t a, std::uint64_t b) {
  return checked_sum(a, b).value_or(std::numeric_limits<std::uint64_t>::max());
}

// Of a figure that was computed from a file's: 0 where it is negative or no number, the largest
// where it would be larger.
constexpr std::uint64_t saturated(double value) {
  if (!(value > 0)) return 0;
  return value < 0x1p64 ? static_cast<std::uint64_t>(value)
                        : std::numeric_limits<std::uint64_t>::max();
}

struct ByteRange {
  std::uint64_t offset = 0, bytes = 0;

  constexpr bool within(std::uint64_t size) const {
    return bytes <= size && offset <= size - bytes;
  }
  // `outer` ends somewhere itself.
  constexpr bool within(const ByteRange& outer) const {
    return offset >= outer.offset && ByteRange{offset - outer.offset, bytes}.within(outer.bytes);
  }
};

}  // namespace sentinel
