// A linear program, least cost, and what its solution proves. Solved by CLP, loaded when the first
// one is solved (see integer_program.h for why); whatever the solver returns, the bound is computed
// from its row prices alone and holds without trust in it.
#pragma once

#include <cstddef>
#include <vector>

namespace sentinel::plan {

class LinearProgram {
 public:
  using Column = int;
  using Row = int;

  // Both bounds must be finite: that is what makes any prices a proof.
  Column column(double lower, double upper, double cost = 0);
  Row row(double lower, double upper);        // may be infinite
  void add(Row, Column, double coefficient);  // entries of one place add up

  std::size_t rows() const { return row_lower_.size(); }
  std::size_t columns() const { return lower_.size(); }

  struct Solution {
    bool optimal = false;       // false: the time limit cut
    double lower_bound = 0;     // no feasible point costs less
    std::vector<double> value;  // per column
  };
  // Whether the solver is installed (package coinor-libclp1).
  static bool solvable();
  // Deterministic while the time limit (CPU seconds of the process) does not cut. Throws Error
  // where the solver is not installed.
  Solution solve(double time_limit_s) const;

 private:
  struct Entry {
    Row row;
    Column column;
    double value;
  };
  std::vector<Entry> merged() const;  // by column, then row; one entry a place
  double proven(const double* prices) const;

  std::vector<double> lower_, upper_, cost_;   // per column
  std::vector<double> row_lower_, row_upper_;  // per row
  std::vector<Entry> entries_;
};

}  // namespace sentinel::plan
