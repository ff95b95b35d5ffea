// The figures of steps, beside one another: of two that are compared, of the ranks of one training.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/view/step_view.h"

namespace sentinel {

enum class Unit : std::uint8_t { us, bytes, count };
std::string print(Unit, double);
std::string grouped(std::uint64_t);  // 1,234,567

struct StepFigure {
  const char* label;
  Unit unit;
  std::vector<double> values;  // one a step
};
// Those that are not 0 in all steps, and are of one kind: page accesses are not compared with uses.
std::vector<StepFigure> figures_of(std::span<const StepView* const>);

bool told_by_figures(std::string_view fact);  // by its label in provenance()

}  // namespace sentinel
