// Loads CLP, solves the program, and proves a bound from the dual values.
#include "plan/solver/linear_program.h"

#include <coin/Clp_C_Interface.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

#include "plan/solver/solver_library.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

constexpr double kRounding = 1e-12;  // of the sums that make the proven bound, relative

constexpr const char* kLibraries[] = {"libClp.so.1"};

class Clp {
 public:
  static const Clp& get() {
    static const Clp loaded;
    return loaded;
  }

  bool complete = false;
  decltype(&Clp_newModel) new_model = nullptr;
  decltype(&Clp_deleteModel) delete_model = nullptr;
  decltype(&Clp_setLogLevel) set_log_level = nullptr;
  decltype(&Clp_setMaximumSeconds) set_maximum_seconds = nullptr;
  decltype(&Clp_loadProblem) load_problem = nullptr;
  decltype(&Clp_initialSolveWithOptions) solve = nullptr;
  decltype(&Clp_status) status = nullptr;
  decltype(&Clp_primalColumnSolution) values = nullptr;
  decltype(&Clp_dualRowSolution) prices = nullptr;
  decltype(&ClpSolve_new) new_options = nullptr;
  decltype(&ClpSolve_delete) delete_options = nullptr;
  decltype(&ClpSolve_setSolveType) set_solve_type = nullptr;
  decltype(&ClpSolve_setPresolveType) set_presolve_type = nullptr;

 private:
  Clp() : library_(open_solver(kLibraries)) {
    complete = library_ && load("Clp_newModel", new_model) &&
               load("Clp_deleteModel", delete_model) && load("Clp_setLogLevel", set_log_level) &&
               load("Clp_setMaximumSeconds", set_maximum_seconds) &&
               load("Clp_loadProblem", load_problem) &&
               load("Clp_initialSolveWithOptions", solve) && load("Clp_status", status) &&
               load("Clp_primalColumnSolution", values) && load("Clp_dualRowSolution", prices) &&
               load("ClpSolve_new", new_options) && load("ClpSolve_delete", delete_options) &&
               load("ClpSolve_setSolveType", set_solve_type) &&
               load("ClpSolve_setPresolveType", set_presolve_type);
  }

  template <class Function>
  bool load(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    return function != nullptr;
  }

  void* library_;
};

}  // namespace

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
    reduced[static_cast<std::size_t>(e.column)] -= e.value * price[static_cast<std::size_t>(e.row)];
  for (std::size_t j = 0; j < columns(); ++j)
    bound += reduced[j] * (reduced[j] > 0 ? lower_[j] : upper_[j]);
  return bound - kRounding * std::abs(bound);
}

bool LinearProgram::solvable() { return Clp::get().complete; }

LinearProgram::Solution LinearProgram::solve(double time_limit_s) const {
  constexpr int kDualSimplex = 0, kPresolveOn = 0, kOptimal = 0;  // as ClpSolve numbers them
  if (!solvable()) throw Error("linear programs need CLP (package coinor-libclp1)");
  std::vector<CoinBigIndex> start(columns() + 1, 0);
  std::vector<int> row;
  std::vector<double> value;
  for (const Entry& e : merged()) {
    ++start[static_cast<std::size_t>(e.column) + 1];
    row.push_back(e.row);
    value.push_back(e.value);
  }
  for (std::size_t c = 0; c < columns(); ++c) start[c + 1] += start[c];
  const Clp& clp = Clp::get();
  const std::unique_ptr<Clp_Simplex, void (*)(Clp_Simplex*)> model(clp.new_model(),
                                                                   clp.delete_model);
  clp.set_log_level(model.get(), 0);
  clp.load_problem(model.get(), static_cast<int>(columns()), static_cast<int>(rows()), start.data(),
                   row.data(), value.data(), lower_.data(), upper_.data(), cost_.data(),
                   row_lower_.data(), row_upper_.data());
  clp.set_maximum_seconds(model.get(), time_limit_s);
  const std::unique_ptr<Clp_Solve, void (*)(Clp_Solve*)> options(clp.new_options(),
                                                                 clp.delete_options);
  clp.set_solve_type(options.get(), kDualSimplex, -1);
  clp.set_presolve_type(options.get(), kPresolveOn, -1);
  clp.solve(model.get(), options.get());
  const double* values = clp.values(model.get());
  return {.optimal = clp.status(model.get()) == kOptimal,
          .lower_bound = proven(clp.prices(model.get())),
          .value = {values, values + columns()}};
}

}  // namespace sentinel::plan
