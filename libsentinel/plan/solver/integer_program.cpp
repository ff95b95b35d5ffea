// Loads CBC, hands it the program's rows and columns, and reads the solution.
#include "plan/solver/integer_program.h"

#include <coin/Cbc_C_Interface.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "plan/solver/solver_library.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

// As Debian 12 and Ubuntu name it; as Debian 13 does.
constexpr const char* kLibraries[] = {"libCbcSolver.so.3", "libCbcSolver.so.3.1"};

class Cbc {
 public:
  static const Cbc& get() {
    static const Cbc loaded;
    return loaded;
  }

  decltype(&Cbc_newModel) new_model;
  decltype(&Cbc_deleteModel) delete_model;
  decltype(&Cbc_loadProblem) load_problem;
  decltype(&Cbc_setInteger) set_integer;
  decltype(&Cbc_setParameter) set_parameter;
  decltype(&Cbc_solve) solve;
  decltype(&Cbc_bestSolution) best_solution;

 private:
  Cbc() {
    void* library = open_solver(kLibraries);
    if (!library)
      throw Error(
          "integer programs need CBC: install the package coinor-libcbc3 or coinor-libcbc3.1");
    load(library, "Cbc_newModel", new_model);
    load(library, "Cbc_deleteModel", delete_model);
    load(library, "Cbc_loadProblem", load_problem);
    load(library, "Cbc_setInteger", set_integer);
    load(library, "Cbc_setParameter", set_parameter);
    load(library, "Cbc_solve", solve);
    load(library, "Cbc_bestSolution", best_solution);
  }

  template <class Function>
  static void load(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (!function) throw Error(fmt::format("the library of CBC has no {}", name));
  }
};

struct Columns {  // the rows' terms, by column
  explicit Columns(const IntegerProgram& program) : start(program.cost.size() + 1, 0) {
    for (const auto& row : program.rows)
      for (const auto& [column, coefficient] : row.terms) ++start[column + 1];
    for (std::size_t c = 0; c < program.cost.size(); ++c) start[c + 1] += start[c];
    index.resize(static_cast<std::size_t>(start.back()));
    value.resize(index.size());
    std::vector<CoinBigIndex> next(start.begin(), start.end() - 1);
    for (std::size_t r = 0; r < program.rows.size(); ++r)
      for (const auto& [column, coefficient] : program.rows[r].terms) {
        index[static_cast<std::size_t>(next[column])] = static_cast<int>(r);
        value[static_cast<std::size_t>(next[column]++)] = coefficient;
      }
  }
  std::vector<CoinBigIndex> start;
  std::vector<int> index;
  std::vector<double> value;
};

void load(const Cbc& cbc, Cbc_Model* model, const IntegerProgram& program) {
  const Columns columns(program);
  const std::size_t n = program.cost.size();
  const std::vector<double> low(n, 0), high(n, 1);
  std::vector<double> row_low, row_high;
  for (const auto& row : program.rows) {
    row_low.push_back(row.low);
    row_high.push_back(row.high);
  }
  cbc.load_problem(model, static_cast<int>(n), static_cast<int>(program.rows.size()),
                   columns.start.data(), columns.index.data(), columns.value.data(), low.data(),
                   high.data(), program.cost.data(), row_low.data(), row_high.data());
  for (std::size_t c = 0; c < n; ++c)
    if (program.integer[c]) cbc.set_integer(model, static_cast<int>(c));
}

}  // namespace

std::uint32_t IntegerProgram::add_column(double column_cost, bool is_integer) {
  cost.push_back(column_cost);
  integer.push_back(is_integer);
  return static_cast<std::uint32_t>(cost.size() - 1);
}

std::optional<std::vector<double>> solve(const IntegerProgram& program,
                                         const SearchLimits& limits) {
  if (program.cost.empty()) return std::vector<double>{};  // CBC would print its result
  const Cbc& cbc = Cbc::get();
  const std::unique_ptr<Cbc_Model, void (*)(Cbc_Model*)> model(cbc.new_model(), cbc.delete_model);
  load(cbc, model.get(), program);
  const auto set = [&](const char* name, const std::string& value) {
    cbc.set_parameter(model.get(), name, value.c_str());
  };
  set("log", "0");
  set("threads", "0");
  set("timeMode", "elapsed");
  set("sec", fmt::format("{:.3f}", std::max(limits.seconds, 0.05)));
  set("maxN", fmt::format("{}", limits.nodes));
  set("ratioGap", fmt::format("{}", limits.gap));
  // The other rules of its primal simplex, which the feasibility pump uses, fail an assertion now
  // and then.
  set("primalPivot", "dantzig");
  cbc.solve(model.get());
  const double* found = cbc.best_solution(model.get());
  if (!found) return std::nullopt;
  return std::vector<double>(found, found + program.cost.size());
}

}  // namespace sentinel::plan
