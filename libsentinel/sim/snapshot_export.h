// A profiled step as a memory snapshot of PyTorch's CUDA allocator: what torch.cuda._memory_viz and
// pytorch.org/memory_viz show. Its inverse is trace/pytorch_snapshot.h.
//
// Addresses are those that the caching allocator would give (caching_allocator.h), all in one
// segment. What lived before the step is there from its beginning. A tensor is allocated when its
// op begins and freed when its last op ends; the time is the sum of the ops' times. The stack of an
// allocation is its op, its layer and its phase.
#pragma once

#include <string>

#include "sentinel/profile.h"

namespace sentinel::sim {

std::string pytorch_snapshot(const Profile&);  // the pickle

}  // namespace sentinel::sim
