// What a plan makes again, put together for people: before which op, by which replays, what that
// costs, and what moves would.
#pragma once

#include <string_view>
#include <vector>

#include "sentinel/machine.h"
#include "sentinel/plan.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

// The replays before one op serve all that is made again there.
struct MadeAgain {
  struct Lost {
    TensorId tensor;
    OpId maker;  // that is replayed for it last
    OpId since;  // at whose end it is discarded
  };
  OpId before;
  std::vector<OpId> replays;  // in order of execution
  std::vector<Lost> tensors;
  double us = 0;       // of the replays, hashes and copies
  double move_us = 0;  // to write the tensors and read them back instead
};

// In the order of `before`. The plan is sound, and the profile and the machine are its own.
std::vector<MadeAgain> made_again(const Plan&, const Profile&, const Machine&);

// Why a training run of that profile on that machine can make nothing again; empty: it can.
std::string_view why_no_replays(std::string_view machine, const ProfileMeta&);

inline constexpr std::string_view kAdaptorCannot =
    "this framework's adaptor cannot run an op again";
inline constexpr std::string_view kInPlace = "slow memory is used in place";
inline constexpr std::string_view kSettings =
    "on a GPU ops are run again only while PyTorch's algorithms are deterministic "
    "(torch.use_deterministic_algorithms)";

}  // namespace sentinel::plan
