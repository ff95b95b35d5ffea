// What has changed between two profiles: of the same program on two days, at two batch sizes, of
// two versions of a model.
//
// Layers, ops' names and tensors are the same where their names are; of several of one name the
// first is the first, and so on. A time or a count of accesses that differs says little by itself,
// so only what has come, gone, or changed its size or number makes two steps different.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "report/view/figures.h"
#include "report/view/step_view.h"
#include "sentinel/reporter.h"

namespace sentinel {

struct Change {
  std::optional<double> before, after;  // none: not there
  double by() const { return after.value_or(0) - before.value_or(0); }
};

struct DifferentFact {  // where both differ
  std::string label, before, after;
};
struct FigurePair {
  const char* label;
  Unit unit;
  double before = 0, after = 0;
};
struct DifferenceRow {
  std::string name, detail;  // detail: a phase or a kind
  Change value, other;       // see below
};

struct Difference {
  Difference(const StepView& before, const StepView& after);

  std::vector<DifferentFact> facts;
  std::vector<FigurePair> figures;
  // The largest change of `value` first. Layers and ops are all there, tensors where they differ.
  std::vector<DifferenceRow> layers;   // time; peak of live bytes
  std::vector<DifferenceRow> ops;      // by name: time together; how many
  std::vector<DifferenceRow> tensors;  // bytes; accesses
  bool counted = false;                // accesses of both are counts, else uses by ops
  bool comparable = true;              // no: they were counted in one alone, and are left out
  bool same_step = false;              // the same ops, and tensors of the same sizes
  std::string verdict;                 // in a sentence
  std::string note() const;            // on what is left out; empty: nothing is
};

std::string print_change(const FigurePair&);    // "+12.3 %", "-3", "" where nothing has changed
std::string print_change(Unit, const Change&);  // the same; "new", "gone"

struct DifferenceScene {
  const Difference& difference;
  std::string before, after;  // the files' names
  std::size_t rows = 20;      // of each table of the text; 0: all
  RenderStyle style;
};
void difference_text(const DifferenceScene&, std::ostream&);
void difference_json(const DifferenceScene&, std::ostream&);
void difference_html(const DifferenceScene&, std::ostream&);

}  // namespace sentinel
