// Every parse and print of bytes, times and ratios.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sentinel {

constexpr std::uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
constexpr std::uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
constexpr std::uint64_t operator""_GiB(unsigned long long n) { return n << 30; }

constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t to) {
  return (n + to - 1) / to * to;
}
constexpr std::uint64_t round_down(std::uint64_t n, std::uint64_t to) { return n / to * to; }

// "512M", "1.5GiB", "4096", "2g" (binary multiples). Throws Error on anything else.
std::uint64_t parse_bytes(std::string_view text);

// A share of a whole ("20%") or an absolute size.
struct Budget {
  std::uint64_t bytes = 0;
  double percent = 0;  // > 0: a share, bytes is 0
  bool unlimited() const { return bytes == 0 && percent == 0; }
};
Budget parse_budget(std::string_view text);  // throws Error

std::string print_bytes(std::uint64_t bytes);  // "1.3 GiB", three significant digits
std::string print_us(double us);               // "1.2 ms"
std::string print_percent(double ratio);       // 0.123 -> "12.3 %"

}  // namespace sentinel
