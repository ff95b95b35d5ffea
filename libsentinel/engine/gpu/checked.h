// What an engine asks of its device and cannot do without.
#pragma once

#include <exception>

#include "base/failure.h"
#include "engine/gpu/cuda_driver.h"
#include "engine/host/stop.h"

namespace sentinel::gpu {

constexpr int kDeinitialized = 4;  // the driver went first, for the process ends

// Ends the process where the driver refuses, unless it does because the process ends.
template <class F>
void checked(F&& f) noexcept {
  try {
    f();
  } catch (const ProcessEnds&) {
  } catch (const DriverError& error) {
    if (error.status != kDeinitialized) stop_training(error.what());
  } catch (const std::exception& error) {
    stop_training(in_words(error).c_str());
  }
}

}  // namespace sentinel::gpu
