// Few numbers from which a whole set of decisions follows.
#pragma once

#include <vector>

#include "plan/policies/auto/facts.h"

namespace sentinel::plan {

struct Recipe {
  double price = 0;   // of moving for 1 us, in us of computing; 0: nothing is remade
  double slack = 0;   // share of the budget left free for transfers and replays
  double stride = 0;  // what crosses the end of each such share of the step is not remade: chains
                      // of replays begin there; 0: no such ends
};

// What is swapped and what is remade; all swaps to the first slower tier.
std::vector<Decision> decisions(const Facts&, const Recipe&);

}  // namespace sentinel::plan
