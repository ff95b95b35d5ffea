// What one counted opening costs on this machine, by trying.
#pragma once

namespace sentinel {

// Microseconds of a fault, its answer and the arming of one page, the median of a few; 0 where it
// cannot be measured. Measured once per process, takes about a millisecond.
double measured_event_cost_us() noexcept;
double measured_bar_cost_us() noexcept;  // of a barred page of private memory, likewise

}  // namespace sentinel
