#include "plan/linear_program.h"

#include <ClpSimplex.hpp>
#include <ClpSolve.hpp>
#include <CoinPackedMatrix.hpp>
#include <algorithm>
#include <cmath>
#include <tuple>

namespace sentinel::plan {

LinearProgram::Column LinearProgram::column(double lower, double upper, double cost) {
  lower_.push_back(lower);
  upper_.push_back(upper);
  cost_.push_back(cost);
  return static_cast<Column>(lower_.size() - 1);
}

LinearProgram::Row LinearProgram::row(double lower, double upper) {
  row_lower_.push_back(lower);
  row_upper_.push_back(upper);
  return static_cast<Row>(row_lower_.size() - 1);
}

void LinearProgram::add(Row row, Column column, double coefficient) {
  entries_.push_back({row, column, coefficient});
}

std::vector<LinearProgram::Entry> LinearProgram::merged() const {
  auto all = entries_;
  const auto place = [](const Entry& e) { return std::tuple(e.column, e.row); };
  std::ranges::stable_sort(all, {}, place);
  std::vector<Entry> result;
  for (const Entry& e : all)
    if (!result.empty() && place(result.back()) == place(e))
      result.back().value += e.value;
    else
      result.push_back(e);
  std::erase_if(result, [](const Entry& e) { return e.value == 0; });
  return result;
}

// Weak duality: for any prices y, c x = y (A x) + (c - y A) x, and each term is at least its
// smallest value within its bounds. A price that would meet an infinite bound counts as zero.
double LinearProgram::proven(const double* prices) const {
  std::vector<double> price(rows()), reduced = cost_;
  double bound = 0;
  for (std::size_t i = 0; i < rows(); ++i) {
    const double side = prices[i] > 0 ? row_lower_[i] : row_upper_[i];
    price[i] = std::isfinite(side) && std::isfinite(prices[i]) ? prices[i] : 0;
    if (price[i] != 0) bound += price[i] * side;
  }
  for (const Entry& e : entries_)
    reduced[static_cast<std::size_t>(e.column)] -=
        e.value * price[static_cast<std::size_t>(e.row)];
  for (std::size_t j = 0; j < columns(); ++j)
    bound += reduced[j] * (reduced[j] > 0 ? lower_[j] : upper_[j]);
  return bound;
}

LinearProgram::Solution LinearProgram::solve(double time_limit_s) const {
  std::vector<int> row, column;
  std::vector<double> value;
  for (const Entry& e : merged()) {
    row.push_back(e.row);
    column.push_back(e.column);
    value.push_back(e.value);
  }
  CoinPackedMatrix matrix(true, row.data(), column.data(), value.data(),
                          static_cast<CoinBigIndex>(value.size()));
  matrix.setDimensions(static_cast<int>(rows()), static_cast<int>(columns()));
  ClpSimplex solver;
  solver.setLogLevel(0);
  solver.loadProblem(matrix, lower_.data(), upper_.data(), cost_.data(), row_lower_.data(),
                     row_upper_.data());
  solver.setMaximumSeconds(time_limit_s);
  ClpSolve how;
  how.setSolveType(ClpSolve::useDual);
  how.setPresolveType(ClpSolve::presolveOn);
  solver.initialSolve(how);
  const double* values = solver.primalColumnSolution();
  return {.optimal = solver.isProvenOptimal(),
          .lower_bound = proven(solver.dualRowSolution()),
          .value = {values, values + columns()}};
}

}  // namespace sentinel::plan
