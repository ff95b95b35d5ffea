// SPDX-License-Identifier: Apache-2.0
// One type per kind of index, so that a tensor can never be used where an op was meant.
// All ids are dense indices into the vectors of a sentinel::Profile.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace sentinel {

template <class Tag>
struct Id {
  std::uint32_t value = 0;
  constexpr Id() = default;
  constexpr explicit Id(std::size_t v) : value(static_cast<std::uint32_t>(v)) {}
  constexpr std::size_t index() const { return value; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using TensorId = Id<struct TensorTag>;
using OpId = Id<struct OpTag>;
using LayerId = Id<struct LayerTag>;
using GroupId = Id<struct GroupTag>;
using TierId = Id<struct TierTag>;

}  // namespace sentinel

template <class Tag>
struct std::hash<sentinel::Id<Tag>> {
  std::size_t operator()(sentinel::Id<Tag> id) const noexcept { return id.value; }
};
