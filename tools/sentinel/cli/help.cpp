// Prints the overview, a verb's help, and the verb most like a misspelt one.
#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "cli/reference.h"
#include "cli/terminal.h"

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

struct Asked {
  std::string verb;
  bool man = false, markdown = false;
};

int help(const Asked& asked) {
  if (asked.man + asked.markdown + !asked.verb.empty() > 1)
    throw UsageError("--man and --markdown are of all verbs: give one of them, and no verb");
  if (asked.man) return print(manual_page());
  if (asked.markdown) return print(option_reference());
  if (asked.verb.empty()) return print(overview());
  const auto* verb = find_verb(asked.verb);
  if (verb == nullptr)
    throw UsageError(fmt::format("there is no \"{}\"{}", asked.verb, similar_verb(asked.verb)));
  return print(verb_help(*verb));
}

}  // namespace

std::string overview() {
  std::string text = fmt::format("{}\n\n", kPurpose);
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
  const auto asked = std::make_shared<Asked>();
  form.rows = {
      {"VERB", "VERB", "the verb to explain", &asked->verb},
      {"--man", "", "the manual page, as roff: sentinel help --man | man -l -", &asked->man},
      {"--markdown", "", "the reference of the options, docs/reference/options.md",
       &asked->markdown}};
  return [asked] { return help(*asked); };
}

}  // namespace sentinel::cli
