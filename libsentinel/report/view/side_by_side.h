// Several profiles beside one another, as those of the ranks of one training.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "report/view/figures.h"
#include "report/view/step_view.h"
#include "sentinel/reporter.h"

namespace sentinel {

struct SideBySide {
  SideBySide(std::vector<std::string> files, std::vector<const StepView*> steps);

  struct Fact {
    std::string label;
    std::vector<std::string> values;  // one a profile; empty: not known
  };
  std::vector<std::string> files;
  std::vector<StepFigure> figures;
  std::vector<Fact> facts;  // that are not the same in all
};

void side_by_side_text(const SideBySide&, const RenderStyle&, std::ostream&);
void side_by_side_json(const SideBySide&, std::ostream&);

}  // namespace sentinel
