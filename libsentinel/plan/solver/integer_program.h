// Mixed integer programs through CBC, loaded when the first one is solved: it brings a BLAS and an
// OpenMP runtime along, which the processes that train and never solve one must not have beside
// their own.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace sentinel::plan {

struct IntegerProgram {                                   // minimise cost * x
  struct Row {                                            // low <= sum of coefficient * x <= high
    std::vector<std::pair<std::uint32_t, double>> terms;  // column, coefficient
    double low = 0, high = 0;
  };
  std::vector<double> cost;   // per column; columns lie in [0, 1]
  std::vector<bool> integer;  // per column
  std::vector<Row> rows;

  std::uint32_t add_column(double column_cost, bool is_integer);
};

struct SearchLimits {
  std::uint64_t nodes = 0;  // of the search tree
  double seconds = 0;       // only cuts; what CBC has begun it may end some way beyond
  double gap = 0.01;        // relative; a solution this near to the bound is good enough
};

// The best solution found within the limits; none if there was none. Deterministic but for the
// seconds, on one thread. Throws Error where the library is not installed.
std::optional<std::vector<double>> solve(const IntegerProgram&, const SearchLimits&);

}  // namespace sentinel::plan
