// A plan before anything is decided.
#include "plan/gaps/decisions.h"

namespace sentinel::plan {

Plan bare_plan(std::string_view policy, const Basis& basis, const PlanOptions& options) {
  return {.policy = std::string(policy),
          .machine = basis.machine.name,
          .model = basis.profile.meta.model,
          .profile_signature = basis.profile.meta.signature,
          .fast_bytes = options.fast_bytes,
          .granule_bytes = basis.machine.granule_bytes,
          .region_bytes = basis.layout.region_bytes,
          .reserved_bytes = basis.layout.reserved_bytes,
          .placements = basis.layout.placements,
          .groups = basis.layout.groups};
}

}  // namespace sentinel::plan
