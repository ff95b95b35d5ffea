// Sums up steps.
#include "report/view/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/units.h"
#include "sentinel/analysis.h"

namespace sentinel {
namespace {

double bytes_of(const StepView& step) {
  const auto& tensors = step.profile.tensors;
  return std::accumulate(tensors.begin(), tensors.end(), 0.0, [](double sum, const Tensor& tensor) {
    return sum + static_cast<double>(tensor.bytes);
  });
}

double most(const std::vector<std::uint64_t>& values) {
  return values.empty() ? 0 : static_cast<double>(*std::ranges::max_element(values));
}

double accesses_of(const StepView& step) {
  return std::accumulate(step.counts.begin(), step.counts.end(), 0.0,
                         [](double sum, const TensorCount& count) {
                           return sum + static_cast<double>(count.reads + count.writes);
                         });
}

}  // namespace

std::vector<StepFigure> figures_of(std::span<const StepView* const> steps) {
  std::vector<StepFigure> figures;
  const auto add = [&](const char* label, Unit unit, auto figure) {
    std::vector<double> values;
    for (const auto* step : steps) values.push_back(figure(*step));
    if (std::ranges::any_of(values, [](double value) { return value != 0; }))
      figures.push_back({label, unit, std::move(values)});
  };
  using S = const StepView&;
  const auto counted = std::ranges::count_if(steps, [](const auto* step) { return step->counted; });
  add("step", Unit::us, [](S s) { return s.profile.meta.step_us; });
  add("all ops", Unit::us, [](S s) { return ideal_us(s.profile); });
  add("peak live memory", Unit::bytes, [](S s) { return static_cast<double>(s.peak_live()); });
  add("largest op's tensors", Unit::bytes, [](S s) { return most(s.working_set); });
  add("all tensors", Unit::bytes, bytes_of);
  add("tensors", Unit::count, [](S s) { return static_cast<double>(s.profile.tensors.size()); });
  add("ops", Unit::count, [](S s) { return static_cast<double>(s.profile.ops.size()); });
  add("layers", Unit::count, [](S s) { return static_cast<double>(s.layers.size()); });
  if (counted == std::ssize(steps)) add("page accesses", Unit::count, accesses_of);
  if (counted == 0) add("uses by ops", Unit::count, accesses_of);
  return figures;
}

bool told_by_figures(std::string_view label) {
  return label == "step" || label == "contents" || label == "peak";
}

std::string grouped(std::uint64_t number) {
  auto digits = fmt::format("{}", number);
  for (auto at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string print(Unit unit, double value) {
  if (unit == Unit::us) return print_us(value);
  if (unit == Unit::bytes) return print_bytes(static_cast<std::uint64_t>(value));
  return fmt::format("{:.0f}", value);
}

}  // namespace sentinel
