// Reads which share of the time that it wanted a processor this thread had one.
#include "plan/solver/processor_share.h"

#include <algorithm>
#include <fstream>

namespace sentinel::plan {

double processor_share() {
  constexpr double kLeastNs = 5e6, kLeast = 0.05;
  double ran_ns = 0, waited_ns = 0;  // for a processor
  if (!(std::ifstream("/proc/thread-self/schedstat") >> ran_ns >> waited_ns)) return 1;
  if (ran_ns + waited_ns < kLeastNs) return 1;
  return std::clamp(ran_ns / (ran_ns + waited_ns), kLeast, 1.0);
}

}  // namespace sentinel::plan
