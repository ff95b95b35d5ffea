// The second way to a GPU's memory, behind the same seam: managed memory (cudaMallocManaged), which
// has one address and one copy of each page, on the device or on the host. "Copies" between a range
// and its place on the host are prefetches in a stream's order; a range is advised to belong on the
// device. A kernel that touches what is elsewhere has it brought by the driver, so nothing can be
// used too early; only the budget is then exceeded.
//
// Managed memory is never asked for beyond what the device has free when this is made: a device
// that others use too must not be driven out of it. So all tensors, wherever they lie, have to fit
// into the device's memory, and scarcity comes from the budget.
#pragma once

#include <memory>

#include "engine/gpu/cuda_driver.h"

namespace sentinel::gpu {

std::unique_ptr<Driver> make_managed_driver(std::unique_ptr<Driver>);

}  // namespace sentinel::gpu
