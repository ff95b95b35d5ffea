// Keeps border granules until their op, and lets them go in its order.
#include "runtime/step/kept_borders.h"

namespace sentinel {

void KeptBorders::keep(const LiveTensor& tensor, const Borders& borders, std::uint32_t op,
                       bool sinks) {
  const auto granule_bytes = engine_.granule();
  borders.for_each_soon(TensorId(tensor.slot), op, [&](std::uint64_t offset, std::uint32_t birth) {
    const auto granule = tensor.address / granule_bytes * granule_bytes + offset;
    const bool beyond = granule >= tensor.address + tensor.bytes;  // it is smaller than planned
    if (kept_.size() >= most_ || beyond) return;
    engine_.promote(granule, 1);
    kept_.push_back({granule, birth, sinks});
  });
}

void KeptBorders::let_go(std::uint32_t before) {
  std::erase_if(kept_, [&](const Border& border) {
    if (border.birth >= before) return false;
    if (border.sinks)
      engine_.sink(border.granule, 1);
    else
      engine_.demote(border.granule, 1);
    return true;
  });
}

void KeptBorders::let_go_soon() {
  for (auto& border : kept_) border.birth = 0;
}

}  // namespace sentinel
