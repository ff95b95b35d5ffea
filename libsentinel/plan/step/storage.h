// What the planner moves: storages over one cyclic step (the end of a step is the start of the
// next). Positions are op indices; a position p >= ops means op p - ops of the following step, so
// that a lifetime or an idle gap that crosses the step's end is still one range.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sentinel/profile.h"

namespace sentinel::plan {

struct Storage {
  TensorId tensor;
  // The instance that the previous step left behind and this step frees (a gradient that is set
  // to none, a batch fetched ahead). It lies where `tensor` lies and is the same storage one step
  // older. Only where it is gone before `tensor` is allocated again.
  std::optional<TensorId> carried;
  bool persistent = false;
  std::uint32_t first = 0, last = 0;  // alive, inclusive; last >= ops with `carried`
  LayerId first_layer, last_layer;    // last_layer is of the next step with `carried`
  std::vector<std::uint32_t> uses;    // ascending positions in [first, last]
  std::uint64_t bytes = 0;
  std::uint64_t accesses = 0;  // openings in the whole step

  bool short_lived() const { return !persistent && !carried && first_layer == last_layer; }
  TensorId at(std::uint32_t position, std::size_t ops) const {
    return carried && position >= ops ? *carried : tensor;
  }
};

// What the step before left behind and this step frees, with what this step makes and leaves behind
// itself: by size, in order of birth.
struct Left {
  TensorId before, now;
  bool beside;  // both exist for a while: a script keeps its last result until the next is made
};
std::vector<Left> left_behind(const Profile&);

// Every tensor that occupies memory of ours, once: foreign and empty ones are left out.
std::vector<Storage> storages(const Profile&);

// Whether the use at this position reads the storage; what is only an output is overwritten whole.
bool reads(const Profile&, const Storage&, std::uint32_t position);
bool writes(const Profile&, const Storage&, std::uint32_t position);

// Whether op `op` may write the tensor: it names it as an output, or a counted write says so.
class Writes {
 public:
  explicit Writes(const Profile&);
  bool operator()(TensorId, OpId) const;

 private:
  std::vector<std::vector<std::uint32_t>> ops_;  // per tensor, ascending
};

}  // namespace sentinel::plan
