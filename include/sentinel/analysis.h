// SPDX-License-Identifier: Apache-2.0
// Views derived from a profile, shared by plan, sim, runtime and report so that each is defined
// once. Pure functions; implemented in libsentinel/trace/analysis.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "sentinel/profile.h"

namespace sentinel {

struct Lifetime {  // inclusive
  OpId first_op, last_op;
  LayerId first_layer, last_layer;
  bool persistent = false;  // neither allocated nor freed within the step
  std::uint32_t layers() const { return last_layer.value - first_layer.value + 1; }
  bool short_lived() const { return !persistent && layers() == 1; }
};

std::uint64_t page_round(std::uint64_t bytes, std::uint64_t page = 4096);

// One per tensor. A tensor without alloc_op lives from op 0, one without free_op to the last op.
std::vector<Lifetime> lifetimes(const Profile&);

// One per tensor: the ops that name it or (where counted) open it, ascending.
std::vector<std::vector<OpId>> uses(const Profile&);

struct TensorCount {
  std::uint64_t reads = 0, writes = 0;
  double hotness = 0;
};
// One per tensor: openings; hotness is openings per page. Without counts, one per naming op.
std::vector<TensorCount> counts(const Profile&);

// Page-rounded bytes of live tensors at each op, persistent ones included, foreign not.
std::vector<std::uint64_t> live_bytes(const Profile&);
std::uint64_t peak_live_bytes(const Profile&);

// Page-rounded bytes that each op needs at once (in and out, allocated within it).
std::vector<std::uint64_t> working_set_bytes(const Profile&);

double ideal_us(const Profile&);  // sum of op times

}  // namespace sentinel
