// Granules at the borders of tensors: those of one group lie next to each other, so where one ends
// and the next begins a granule is both's. Where the one leaves shortly before the other begins,
// the granule should stay: it would be written, and read again while the op that begins the other
// waits.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel {

class Borders {
 public:
  static constexpr std::uint32_t kNear = 64;  // ops, in the profile's order

  Borders(const Profile&, const Plan&);

  // Visit(offset, op): the tensor leaves at the end of `from`; in the granule at that offset of its
  // first byte's granule another one begins at `op`, soon.
  template <class Visit>
  void for_each_soon(TensorId tensor, std::uint32_t from, Visit&& visit) const {
    const auto [first, last] = granules_[tensor.index()];
    for (auto granule = first;; granule = last) {
      if (const auto op = next_birth(granule, from); op - from <= kNear)
        visit((granule - first) * granule_bytes_, op);
      if (granule == last) return;
    }
  }

  // The granules at its ends in which the plan puts no other tensor, in the whole step.
  Engine::Ends own_ends(TensorId) const;

 private:
  struct GranuleSpan {
    std::uint64_t first = 0, last = 0;  // granules, inclusive
  };
  std::uint32_t next_birth(std::uint64_t granule, std::uint32_t from) const;

  std::uint64_t granule_bytes_;
  std::vector<GranuleSpan> granules_;  // per tensor; of one that is not placed, of no meaning
  // Of granules that more than one long-lived tensor lies in: the ops at which these begin, sorted.
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> births_;
  std::unordered_map<std::uint64_t, std::uint32_t> tensors_;  // that begin or end in a granule
};

}  // namespace sentinel
