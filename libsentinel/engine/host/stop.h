// How a training ends that cannot go on: before a wrong number exists.
#pragma once

namespace sentinel {

// Says why, and ends the process with status 125. Allocates nothing: in the thread that serves
// faults nothing may.
[[noreturn]] void stop_training(const char* why) noexcept;

constexpr char kClosed[] =
    "this program has closed descriptors that it did not open, those of Sentinel among them";

}  // namespace sentinel
