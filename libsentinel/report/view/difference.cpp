// Pairs layers, ops and tensors of two steps by their names, and sums up what differs.
#include "report/view/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/units.h"
#include "report/view/provenance.h"
#include "sentinel/analysis.h"

namespace sentinel {
namespace {

// The nth of a name.
using Key = std::pair<std::string, std::size_t>;

class Keys {
 public:
  Key of(const std::string& name) { return {name, seen_[name]++}; }

 private:
  std::map<std::string, std::size_t> seen_;
};

using Rows = std::map<Key, DifferenceRow>;

DifferenceRow& row_of(Rows& rows, const Key& key, std::string_view detail) {
  auto& row = rows[key];
  row.name = key.first;
  row.detail = detail;
  return row;
}

// `at` is the half of a Change: &Change::before or &Change::after.
using Half = std::optional<double> Change::*;

void add_layers(Rows& rows, const StepView& step, Half at) {
  Keys keys;
  for (std::size_t l = 0; l < step.layers.size(); ++l) {
    auto& row = row_of(rows, keys.of(layer_label(step, LayerId(l))), name_of(step.layers[l].phase));
    row.value.*at = step.totals[l].us;
    row.other.*at = static_cast<double>(step.totals[l].live_bytes);
  }
}

void add_ops(Rows& rows, const StepView& step, Half at) {
  for (const auto& op : step.profile.ops) {
    const auto phase = name_of(op.phase);
    auto& row = row_of(rows, {op.name, static_cast<std::size_t>(op.phase)}, phase);
    row.value.*at = (row.value.*at).value_or(0) + op.us;
    row.other.*at = (row.other.*at).value_or(0) + 1;
  }
}

void add_tensors(Rows& rows, const StepView& step, Half at) {
  Keys keys;
  for (std::size_t t = 0; t < step.profile.tensors.size(); ++t) {
    const auto& tensor = step.profile.tensors[t];
    auto& row = row_of(rows, keys.of(tensor.name), name_of(tensor.kind));
    row.value.*at = static_cast<double>(tensor.bytes);
    row.other.*at = static_cast<double>(step.counts[t].reads + step.counts[t].writes);
  }
}

std::vector<DifferenceRow> sorted(Rows rows) {
  std::vector<DifferenceRow> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  std::ranges::stable_sort(list, std::ranges::greater(),
                           [](const DifferenceRow& row) { return std::abs(row.value.by()); });
  return list;
}

template <class Add>
std::vector<DifferenceRow> compared(const StepView& before, const StepView& after, Add add) {
  Rows rows;
  add(rows, before, &Change::before);
  add(rows, after, &Change::after);
  return sorted(std::move(rows));
}

std::vector<DifferentFact> different_facts(const StepView& before, const StepView& after) {
  std::map<std::string, std::string> earlier;
  for (auto& fact : provenance(before)) earlier[fact.label] = std::move(fact.value);
  std::vector<DifferentFact> facts;
  for (auto& fact : provenance(after)) {
    const auto was = earlier.extract(fact.label);
    const auto value = was.empty() ? std::string() : was.mapped();
    if (value != fact.value && !told_by_figures(fact.label))
      facts.push_back({fact.label, value, fact.value});
  }
  for (auto& [label, value] : earlier)
    if (!told_by_figures(label)) facts.push_back({label, value, ""});
  return facts;
}

std::vector<FigurePair> pairs_of(const StepView& before, const StepView& after) {
  std::vector<FigurePair> pairs;
  const StepView* const steps[] = {&before, &after};
  for (const auto& [label, unit, values] : figures_of(steps))
    pairs.push_back({label, unit, values[0], values[1]});
  return pairs;
}

struct Counts {
  std::size_t came = 0, went = 0, changed = 0;
  bool none() const { return came + went + changed == 0; }
};

Counts count(const std::vector<DifferenceRow>& rows, const Change DifferenceRow::*of) {
  Counts counts;
  for (const auto& row : rows) {
    const auto& [before, after] = row.*of;
    if (!before)
      ++counts.came;
    else if (!after)
      ++counts.went;
    else if (*before != *after)
      ++counts.changed;
  }
  return counts;
}

std::string in_words(const Counts& counts, const char* what, const char* changed) {
  std::string text;
  const auto add = [&](std::size_t number, const char* how) {
    if (number != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", number, how);
  };
  add(counts.came, "are new");
  add(counts.went, "are gone");
  add(counts.changed, changed);
  return text.empty() ? "" : fmt::format("of the {} {}", what, text);
}

}  // namespace

Difference::Difference(const StepView& before, const StepView& after)
    : facts(different_facts(before, after)),
      figures(pairs_of(before, after)),
      layers(compared(before, after, add_layers)),
      ops(compared(before, after, add_ops)),
      tensors(compared(before, after, add_tensors)) {
  const auto of_ops = count(ops, &DifferenceRow::other),
             of_tensors = count(tensors, &DifferenceRow::value);
  counted = before.counted && after.counted;
  comparable = before.counted == after.counted;
  if (!comparable)
    for (auto& row : tensors) row.other = {};
  same_step = of_ops.none() && of_tensors.none();
  const auto first = in_words(of_ops, "kinds of op", "are called another number of times"),
             second = in_words(of_tensors, "tensors", "have another size");
  verdict = same_step ? "Both are the same step: the same ops, and tensors of the same sizes. Only "
                        "times and accesses may differ."
                      : fmt::format("The steps differ: {}{}{}.", first,
                                    first.empty() || second.empty() ? "" : "; ", second);
  std::erase_if(tensors, [](const DifferenceRow& row) {
    return row.value.before && row.value.after && *row.value.before == *row.value.after;
  });
}

std::string Difference::note() const {
  if (comparable) return "";
  return "Accesses are left out: only one of the two profiles has counted them.";
}

std::string print_change(const FigurePair& pair) {
  return print_change(pair.unit, {pair.before, pair.after});
}

std::string print_change(Unit unit, const Change& change) {
  if (!change.before) return "new";
  if (!change.after) return "gone";
  const auto by = change.by();
  if (by == 0) return "";
  if (unit == Unit::count) return fmt::format("{:+.0f}", by);
  if (*change.before == 0) return fmt::format("+{}", print(unit, by));
  return fmt::format("{:+.1f} %", 100 * by / *change.before);
}

}  // namespace sentinel
