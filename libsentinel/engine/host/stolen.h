// How much of the processors' time the host of a virtual machine gives to something else: to other
// machines, or to the drive that it makes for this one.
#pragma once

#include <cstdint>
#include <string_view>

namespace sentinel {

// Of all processors since the machine has started, in the kernel's ticks.
struct ProcessorTicks {
  std::uint64_t all = 0, stolen = 0;
};

// From any thread; zeros where the kernel does not say. `stat`: the text of /proc/stat (proc(5)).
ProcessorTicks processor_ticks() noexcept;
ProcessorTicks processor_ticks(std::string_view stat) noexcept;

// The part of the time between that was stolen; 0 where none has passed.
double stolen_between(const ProcessorTicks& from, const ProcessorTicks& to) noexcept;

}  // namespace sentinel
