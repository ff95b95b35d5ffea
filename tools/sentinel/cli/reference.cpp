// Writes the manual page and docs/reference/options.md from verbs and table.
#include "cli/reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "cli/help.h"
#include "cli/verbs.h"
#include "options/table.h"

namespace sentinel::cli {
namespace {

// Texts of rows are written in Markdown: backticks stand around words to write as they are.
std::string code(const std::string& text) { return text.empty() ? "" : fmt::format("`{}`", text); }

bool is_option(const OptionRow& row) { return row.verbs != kOfNone; }

std::string verbs_of(const OptionRow& row) {
  return (row.verbs & kOfRecord) != 0 ? "record, run" : "run";
}

std::string default_of(const OptionRow& row) {
  return *row.fallback != '\0' ? code(row.fallback) : row.otherwise;
}

// "slow=DIR,..." has its stop already.
std::string with_stop(std::string_view text) {
  return fmt::format("{}{}", text, text.ends_with('.') ? "" : ".");
}

// The meaning, in sentences without the last one's full stop.
std::string sentences(const OptionRow& row) {
  std::string text = help_of(row);
  if (row.type == OptionType::number) text += fmt::format(" ({} to {})", row.least, row.most);
  if (*row.more != '\0') text = fmt::format("{} {}", with_stop(text), row.more);
  if (*row.alone != '\0')
    text = fmt::format("{} {} means {}", with_stop(text),
                       *row.value != '\0' ? "Without a value the option" : "The option",
                       code(row.alone));
  return text;
}

// "NAME" as " NAME", or "[=NAME]" where the option may stand alone.
std::string with_value(const std::string& value, bool alone) {
  if (value.empty()) return "";
  return alone ? fmt::format("[={}]", value) : fmt::format(" {}", value);
}

std::string spaced(const std::string& names) {
  const auto comma = names.find(',');
  return comma == names.npos
             ? names
             : fmt::format("{}, {}", names.substr(0, comma), names.substr(comma + 1));
}

// Within a table a bar would end the cell.
std::string cell(std::string text) {
  for (auto at = text.find('|'); at != text.npos; at = text.find('|', at + 2))
    text.insert(at, "\\");
  return text;
}

std::string line_of(std::initializer_list<std::string> cells) {
  std::string line = "|";
  for (const auto& text : cells) line += text.empty() ? " |" : fmt::format(" {} |", cell(text));
  return line + "\n";
}

std::string option_line(const OptionRow& row) {
  const auto value = row.type == OptionType::choice
                         ? fmt::format("{}", fmt::join(words_of(row), "|"))
                         : std::string(row.value);
  return line_of({code(spaced(row.names) + with_value(value, *row.alone != '\0')),
                  code(row.variable), default_of(row), verbs_of(row), sentences(row)});
}

// Roff: a dash that is no minus would be a hyphen, and a line must not begin as a request does.
std::string roff(std::string_view text) {
  std::string out;
  bool within_code = false;
  for (const char c : text) {
    if (c == '`')
      out += (within_code = !within_code) ? "\\fB" : "\\fR";
    else if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '~')
      out += "\\(ti";
    else
      out += c;
  }
  return out.starts_with('.') || out.starts_with('\'') ? fmt::format("\\&{}", out) : out;
}

std::string item(const std::string& names, const std::string& value, bool alone,
                 const std::string& text) {
  const auto shown = value.empty() ? "" : fmt::format("\\fI{}\\fR", roff(value));
  const auto term =
      names.empty() ? shown
                    : fmt::format("\\fB{}\\fR{}", roff(spaced(names)), with_value(shown, alone));
  return fmt::format(".TP\n{}\n{}\n", term, roff(with_stop(text)));
}

std::string item(const Row& row) {
  auto text = row.meaning;
  if (!row.choices.empty()) text += fmt::format(" ({})", fmt::join(row.choices, ", "));
  return item(row.is_option() ? row.names : "", row.value, !row.alone.empty(), text);
}

std::string item(const OptionRow& row) {
  auto text = with_stop(sentences(row));
  if (row.type == OptionType::choice)
    text += fmt::format(" One of {}.", fmt::join(words_of(row), ", "));
  const auto without = row.type == OptionType::flag ? "" : default_of(row);
  if (!without.empty()) text += fmt::format(" Default: {}.", without);
  if (!is_option(row)) return item(row.variable, "", false, text);
  text += fmt::format(" Variable: `{}`; of {}", row.variable, verbs_of(row));
  return item(row.names, row.value, *row.alone != '\0', text);
}

std::string command_line(const Verb& verb) {
  return fmt::format("\\fBsentinel {}\\fR {}", verb.name, roff(verb.synopsis));
}

// Those that come from the table stand in a section of their own.
std::string verb_section(const Verb& verb) {
  Form form;
  verb.declare(form);
  const auto is_shared = [&](const Row& row) {
    return form.takes_command && std::ranges::any_of(option_table(), [&](const OptionRow& option) {
             return row.names == option.names;
           });
  };
  auto text =
      fmt::format(".SS {}\n{}\n.PP\n{}.\n", verb.name, command_line(verb), roff(verb.purpose));
  for (const auto& row : form.rows)
    if (!is_shared(row)) text += item(row);
  if (form.takes_command) text += ".PP\nFurther options: see OPTIONS.\n";
  text += ".PP\n.nf\n";
  for (const auto* example : verb.examples) text += roff(example) + "\n";
  return text + ".fi\n";
}

std::string purpose() {
  std::string text = kPurpose;
  text.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(text.front())));
  text.pop_back();  // the full stop
  return text;
}

constexpr std::pair<const char*, const char*> kStatuses[] = {
    {"0", "done"},
    {"1", "failed; the reason and what to do are on stderr"},
    {"2", "wrong usage"},
    {"125", "`run` and `record`: a failure of Sentinel's own"},
    {"126,127", "`run` and `record`: the command could not be executed, or was not found"},
    {"128 + n", "`run` and `record`: the command was ended by signal n"},
};

}  // namespace

std::string manual_page() {
  std::string text = fmt::format(
      ".TH SENTINEL 1 \"\" \"sentinel {}\" \"User Commands\"\n.nh\n.ad l\n"
      ".SH NAME\nsentinel \\- {}\n.SH SYNOPSIS\n.nf\n",
      SENTINEL_VERSION, roff(purpose()));
  for (const auto& verb : verbs()) text += command_line(verb) + "\n";
  text += ".fi\n.SH VERBS\n";
  for (const auto& verb : verbs()) text += verb_section(verb);
  text +=
      ".SH OPTIONS\nOf \\fBrecord\\fR, \\fBrun\\fR and \\fBfit\\fR, which takes those of "
      "\\fBrun\\fR. An option wins over its variable.\n";
  for (const auto& row : option_table())
    if (is_option(row)) text += item(row);
  text += ".SH ENVIRONMENT\nThe variables of the options above, and those without one:\n";
  for (const auto& row : option_table())
    if (!is_option(row) && !row.internal) text += item(row);
  text += ".SH EXIT STATUS\n";
  for (const auto& [status, meaning] : kStatuses) text += item(status, "", false, meaning);
  return text + ".PP\nOtherwise \\fBrun\\fR and \\fBrecord\\fR return the command's own status.\n";
}

std::string option_reference() {
  std::string text =
      "# Options of `sentinel run`, `record` and `fit`\n\n"
      "<!-- Made by `sentinel help --markdown` from libsentinel/options/table.cpp. -->\n\n"
      "Each has a variable that the library reads; the option wins. The variable of an option "
      "without a value is 1 or\n0. `fit` takes the options of `run`. `sentinel help VERB` lists "
      "those of the other verbs.\n\n"
      "| option | variable | default | verbs | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const auto& row : option_table())
    if (is_option(row)) text += option_line(row);
  text +=
      "\n## Variables without an option\n\n| variable | default | meaning |\n| --- | --- | --- |\n";
  for (const auto& row : option_table())
    if (!is_option(row)) text += line_of({code(row.variable), default_of(row), sentences(row)});
  return text;
}

}  // namespace sentinel::cli
