// Where a profile comes from and what its counts are worth, in words.
#pragma once

#include <string>
#include <vector>

#include "report/view/step_view.h"

namespace sentinel {

struct Fact {
  std::string label, value;
};

std::string partial_notice(const StepView& step);    // empty where the profile is complete
std::string fidelity(const StepView& step);          // "userfaultfd, exact, …"
std::vector<Fact> provenance(const StepView& step);  // model first; unknown facts are left out

}  // namespace sentinel
