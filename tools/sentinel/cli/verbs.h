// Every verb in one table; dispatch, help and completion are made from it.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "cli/form.h"

namespace sentinel::cli {

struct Verb {
  const char *name, *synopsis, *purpose;
  std::array<const char*, 2> examples;
  // Fills the form; the answer is called once its targets hold what the user wrote.
  Action (*declare)(Form&);
  int failure = kFailed;  // the exit status of a failure of our own
};

std::span<const Verb> verbs();
const Verb* find_verb(std::string_view name);

int dispatch(std::span<const std::string> arguments);  // without the program's name

Action declare_doctor(Form&);
Action declare_record(Form&);
Action declare_run(Form&);
Action declare_trace(Form&);
Action declare_verify(Form&);
Action declare_top(Form&);
Action declare_broker(Form&);
Action declare_jobs(Form&);
Action declare_fit(Form&);
Action declare_report(Form&);
Action declare_plan(Form&);
Action declare_explain(Form&);
Action declare_simulate(Form&);
Action declare_compare(Form&);
Action declare_import(Form&);
Action declare_export(Form&);
Action declare_bench(Form&);
Action declare_clean(Form&);
Action declare_completion(Form&);
Action declare_help(Form&);

}  // namespace sentinel::cli
