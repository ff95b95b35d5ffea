// Reads the first line of /proc/stat, the sum over all processors.
#include "engine/host/stolen.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>

namespace sentinel {
namespace {

constexpr int kFields = 8;  // user, nice, system, idle, iowait, irq, softirq, steal

}  // namespace

ProcessorTicks processor_ticks(std::string_view stat) noexcept {
  constexpr std::string_view kName = "cpu ";
  if (!stat.starts_with(kName)) return {};
  ProcessorTicks ticks;
  const char *at = stat.data() + kName.size(), *const end = stat.data() + stat.size();
  for (int field = 0; field < kFields; ++field) {
    while (at != end && *at == ' ') ++at;
    std::uint64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc()) return {};
    at = next;
    ticks.all += value;
    ticks.stolen = value;
  }
  return ticks;
}

ProcessorTicks processor_ticks() noexcept {
  const int file = open("/proc/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::array<char, 256> text;
  const auto count = read(file, text.data(), text.size());
  close(file);
  if (count <= 0) return {};
  return processor_ticks(std::string_view(text.data(), static_cast<std::size_t>(count)));
}

double stolen_between(const ProcessorTicks& from, const ProcessorTicks& to) noexcept {
  if (to.all <= from.all || to.stolen < from.stolen) return 0;
  return static_cast<double>(to.stolen - from.stolen) / static_cast<double>(to.all - from.all);
}

}  // namespace sentinel
