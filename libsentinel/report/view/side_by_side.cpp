// Gathers what profiles have in common, and where their origins differ.
#include "report/view/side_by_side.h"

#include <algorithm>
#include <utility>

#include "report/view/provenance.h"

namespace sentinel {

SideBySide::SideBySide(std::vector<std::string> names, std::vector<const StepView*> steps)
    : files(std::move(names)), figures(figures_of(steps)) {
  for (std::size_t i = 0; i < steps.size(); ++i)
    for (auto& [label, value] : provenance(*steps[i])) {
      if (told_by_figures(label)) continue;
      auto at = std::ranges::find(facts, label, &Fact::label);
      if (at == facts.end()) at = facts.insert(at, {label, std::vector<std::string>(steps.size())});
      at->values[i] = std::move(value);
    }
  std::erase_if(facts, [](const Fact& fact) {
    return std::ranges::all_of(fact.values,
                               [&](const auto& value) { return value == fact.values.front(); });
  });
}

}  // namespace sentinel
