// Lists each op's operands, and prices pages that it opens in place.
#include "sim/job/op_uses.h"

#include <algorithm>

namespace sentinel::sim {

OpUses::OpUses(const Profile& profile, const std::vector<plan::Storage>& storages)
    : openings_(profile, storages), ends_(profile.ops.size()), uses_(profile.ops.size()) {
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  for (std::uint32_t i = 0; i < storages.size(); ++i) {
    const StorageId id(i);
    const plan::Storage& s = storages[i];
    if (!s.persistent) ends_[s.last % ops].push_back(id);
    for (std::uint32_t use : s.uses) {
      const Op& op = profile.ops[use % ops];
      const TensorId t = s.at(use, ops);
      const bool in = std::ranges::binary_search(op.in, t),
                 out = std::ranges::binary_search(op.out, t);
      uses_[use % ops].push_back({id, in || !out, out, in || out});
    }
  }
}

plan::Openings::Pages OpUses::pages(OpId op, const Operand& o) const {
  return openings_.of(op, o.storage.value, o.read, o.written);
}

double OpUses::bytes(OpId op, const Operand& o) const { return openings_.bytes(pages(op, o)); }

double OpUses::in_place_us(OpId op, const Operand& o, const Machine& machine,
                           std::uint32_t tier) const {
  return openings_.in_place_us(machine, tier, pages(op, o));
}

}  // namespace sentinel::sim
