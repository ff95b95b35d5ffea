// What all reports read, computed once from a profile: lifetimes, counts, the openings of each
// tensor in each layer, and the memory curves over ops. Holds references: the profile outlives it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sentinel/analysis.h"
#include "sentinel/profile.h"

namespace sentinel {

enum class HeatBand : std::uint8_t { none, cold, warm, hot };  // 0, up to 10, up to 100, more
inline constexpr std::size_t heat_bands = 4;
HeatBand heat_band(double hotness);

// Openings of one tensor in one layer; `hotness` is openings per page.
struct LayerCell {
  LayerId layer;
  std::uint64_t reads = 0, writes = 0;
  double hotness = 0;
};

struct LayerTotal {
  double us = 0;
  std::uint64_t ops = 0, live_bytes = 0;         // peak of live bytes over its ops
  std::uint64_t reads = 0, writes = 0;           // openings of all tensors
  std::uint64_t tensors = 0, touched_bytes = 0;  // distinct tensors opened, and their sizes
};

struct StepView {
  explicit StepView(const Profile& profile);

  const Profile& profile;
  bool counted = false;                       // false: a tensor counts once an op that names it
  std::vector<Layer> layers;                  // as many as ops refer to, unnamed where unknown
  std::vector<Lifetime> lifetimes;            // one a tensor
  std::vector<TensorCount> counts;            // one a tensor
  std::vector<std::vector<LayerCell>> cells;  // one list a tensor, ascending by layer
  std::vector<std::uint64_t> live, hot_live, working_set;  // bytes, one an op
  std::vector<LayerTotal> totals;                          // one a layer

  std::uint64_t page() const { return profile.meta.page_bytes ? profile.meta.page_bytes : 4096; }
  std::uint64_t pages(TensorId t) const;
  std::uint64_t peak_live() const;
  OpId peak_op() const;  // of the first peak; 0 without ops
};

std::string_view name_of(Phase phase);
std::string_view name_of(TensorKind kind);
std::string layer_label(const StepView& step, LayerId layer);  // its name, or "layer 7"

// Live page-rounded bytes at each op of the tensors that `wanted` names (one flag a tensor).
std::vector<std::uint64_t> live_bytes_of(const StepView& step, const std::vector<bool>& wanted);

// Tensors ordered by first layer, then by lifetime, then the biggest first: the heatmap's order.
std::vector<std::size_t> by_first_use(const StepView& step);

}  // namespace sentinel
