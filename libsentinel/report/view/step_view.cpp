// Computes lifetimes, counts by layer and memory curves from a profile.
#include "report/view/step_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace sentinel {
namespace {

std::vector<Layer> all_layers(const Profile& profile) {
  auto layers = profile.layers;
  for (const auto& op : profile.ops)
    if (op.layer.index() >= layers.size()) layers.resize(op.layer.index() + 1, {.phase = op.phase});
  return layers;
}

void add(std::vector<LayerCell>& cells, LayerId layer, std::uint64_t reads, std::uint64_t writes) {
  if (cells.empty() || cells.back().layer != layer) cells.push_back({.layer = layer});
  cells.back().reads += reads;
  cells.back().writes += writes;
}

void add_counted(StepView& step) {
  for (const auto& access : step.profile.accesses)
    add(step.cells[access.tensor.index()], step.profile.ops[access.op.index()].layer, access.reads,
        access.writes);
}

// Without counts, an op that names a tensor counts once, as a write where it writes it at all:
// the same rule as counts().
void add_named(StepView& step) {
  for (const auto& op : step.profile.ops) {
    for (const auto t : op.in)
      if (!std::ranges::binary_search(op.out, t)) add(step.cells[t.index()], op.layer, 1, 0);
    for (const auto t : op.out) add(step.cells[t.index()], op.layer, 0, 1);
  }
}

void fill_cells(StepView& step) {
  step.cells.resize(step.profile.tensors.size());
  step.counted ? add_counted(step) : add_named(step);
  for (std::size_t t = 0; t < step.cells.size(); ++t)
    for (auto& cell : step.cells[t]) {
      const auto openings = static_cast<double>(cell.reads + cell.writes);
      cell.hotness =
          step.counted ? openings / static_cast<double>(step.pages(TensorId(t))) : openings;
    }
}

void fill_totals(StepView& step) {
  step.totals.resize(step.layers.size());
  for (std::size_t i = 0; i < step.profile.ops.size(); ++i) {
    auto& total = step.totals[step.profile.ops[i].layer.index()];
    total.us += step.profile.ops[i].us;
    total.ops += 1;
    total.live_bytes = std::max(total.live_bytes, step.live[i]);
  }
  for (std::size_t t = 0; t < step.cells.size(); ++t)
    for (const auto& cell : step.cells[t]) {
      auto& total = step.totals[cell.layer.index()];
      total.reads += cell.reads;
      total.writes += cell.writes;
      total.tensors += 1;
      total.touched_bytes += step.profile.tensors[t].bytes;
    }
}

}  // namespace

StepView::StepView(const Profile& p)
    : profile(p), counted(!p.accesses.empty()), layers(all_layers(p)) {
  if (p.ops.empty()) {  // nothing ran: tensors have no lifetime to speak of
    lifetimes.resize(p.tensors.size());
    counts.resize(p.tensors.size());
    cells.resize(p.tensors.size());
  } else {
    lifetimes = sentinel::lifetimes(p);
    counts = sentinel::counts(p);
    live = sentinel::live_bytes(p);
    working_set = sentinel::working_set_bytes(p);
    fill_cells(*this);
  }
  std::vector<bool> hot(p.tensors.size());
  for (std::size_t t = 0; t < hot.size(); ++t)
    hot[t] = heat_band(counts[t].hotness) == HeatBand::hot;
  hot_live = live_bytes_of(*this, hot);
  fill_totals(*this);
}

std::uint64_t StepView::pages(TensorId t) const {
  const auto bytes = profile.tensors[t.index()].bytes;
  return std::max<std::uint64_t>(1, page_round(bytes, page()) / page());
}

std::uint64_t StepView::peak_live() const {
  return live.empty() ? 0 : *std::ranges::max_element(live);
}

OpId StepView::peak_op() const {
  return OpId(static_cast<std::size_t>(std::ranges::max_element(live) - live.begin()));
}

HeatBand heat_band(double hotness) {
  if (!(hotness > 0)) return HeatBand::none;
  return hotness <= 10 ? HeatBand::cold : hotness <= 100 ? HeatBand::warm : HeatBand::hot;
}

std::string_view name_of(Phase phase) {
  constexpr std::string_view names[] = {"forward", "backward", "optimizer"};
  return names[static_cast<std::size_t>(phase)];
}

std::string_view name_of(TensorKind kind) {
  constexpr std::string_view names[] = {"global", "intermediate", "workspace"};
  return names[static_cast<std::size_t>(kind)];
}

std::string layer_label(const StepView& step, LayerId layer) {
  if (layer.index() < step.layers.size() && !step.layers[layer.index()].name.empty())
    return step.layers[layer.index()].name;
  return fmt::format("layer {}", layer.index());
}

std::vector<std::uint64_t> live_bytes_of(const StepView& step, const std::vector<bool>& wanted) {
  const auto ops = step.profile.ops.size();
  std::vector<std::uint64_t> bytes(ops);
  if (ops == 0) return bytes;
  std::vector<std::int64_t> change(ops + 1);
  for (std::size_t t = 0; t < wanted.size(); ++t) {
    if (!wanted[t] || step.profile.tensors[t].foreign) continue;
    const auto size =
        static_cast<std::int64_t>(page_round(step.profile.tensors[t].bytes, step.page()));
    change[step.lifetimes[t].first_op.index()] += size;
    change[step.lifetimes[t].last_op.index() + 1] -= size;
  }
  std::int64_t now = 0;
  for (std::size_t i = 0; i < ops; ++i) bytes[i] = static_cast<std::uint64_t>(now += change[i]);
  return bytes;
}

std::vector<std::size_t> by_first_use(const StepView& step) {
  std::vector<std::size_t> order(step.profile.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t t) {
    const auto& life = step.lifetimes[t];
    return std::tuple(life.first_layer, life.last_layer, ~step.profile.tensors[t].bytes);
  });
  return order;
}

}  // namespace sentinel
