#include "help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "terminal.h"

namespace sentinel::cli {
namespace {

constexpr std::size_t kColumn = 24;

std::string row_help(const Row& row) {
  std::string left = row.names;
  if (const auto comma = left.find(','); comma != std::string::npos) left.insert(comma + 1, " ");
  if (row.is_option() && !row.value.empty())
    left += row.alone.empty() ? " " + row.value : "[=" + row.value + "]";
  std::string text = fmt::format("  {:<{}}", left, kColumn - 2);
  if (left.size() + 4 > kColumn) text = fmt::format("  {}\n{:{}}", left, "", kColumn);
  text += row.meaning;
  if (!row.choices.empty()) text += fmt::format(" ({})", fmt::join(row.choices, ", "));
  return text + "\n";
}

std::string rows_help(const Form& form, bool options, const char* title) {
  std::string text;
  for (const auto& row : form.rows)
    if (row.is_option() == options) text += row_help(row);
  return text.empty() ? text : fmt::format("\n{}\n{}", title, text);
}

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0u);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t corner = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const auto above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, corner + (a[i] != b[j])});
      corner = above;
    }
  }
  return row.back();
}

int help(const std::string& name) {
  if (name.empty()) return print(overview());
  const auto* verb = find_verb(name);
  if (verb == nullptr)
    throw UsageError(fmt::format("there is no \"{}\"{}", name, similar_verb(name)));
  return print(verb_help(*verb));
}

}  // namespace

std::string overview() {
  std::string text =
      "Trains models that do not fit into fast memory, and shows where their memory goes.\n\n";
  for (const auto& verb : verbs()) text += fmt::format("  {:<12}{}\n", verb.name, verb.purpose);
  return text +
         "\nStart with\n"
         "  sentinel doctor\n"
         "  sentinel record -- python3 train.py\n"
         "\n`sentinel help VERB` tells what a verb accepts; `sentinel --version` which one this "
         "is.\n";
}

std::string verb_help(const Verb& verb) {
  Form form;
  verb.declare(form);
  return fmt::format("sentinel {} {}\n  {}\n{}{}\nExamples\n  {}\n  {}\n", verb.name, verb.synopsis,
                     verb.purpose, rows_help(form, false, "Arguments"),
                     rows_help(form, true, "Options"), verb.examples[0], verb.examples[1]);
}

std::string similar_verb(std::string_view wrong) {
  const auto all = verbs();
  const auto nearest = std::min_element(all.begin(), all.end(), [&](const Verb& a, const Verb& b) {
    return distance(a.name, wrong) < distance(b.name, wrong);
  });
  if (distance(nearest->name, wrong) > 2) return "";
  return fmt::format("; did you mean {}?", nearest->name);
}

Action declare_help(Form& form) {
  const auto name = std::make_shared<std::string>();
  form.rows = {{"VERB", "VERB", "the verb to explain", name.get()}};
  return [name] { return help(*name); };
}

}  // namespace sentinel::cli
