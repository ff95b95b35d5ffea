// Requires a machine whose first slower tier is byte-addressable.
#include "plan/seam/in_place.h"

#include <fmt/format.h>

#include "sentinel/error.h"

namespace sentinel::plan {

void require_in_place(std::string_view policy, const Machine& machine) {
  if (machine.tiers.size() > 1 && machine.tiers[1].byte_addressable) return;
  throw Error(
      fmt::format("policy {} leaves tensors where they are; it needs a slower tier that ops can "
                  "use in place, and machine {} has none",
                  policy, machine.name));
}

}  // namespace sentinel::plan
