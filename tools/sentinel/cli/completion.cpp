// Completion scripts, from the table of verbs and their forms.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/terminal.h"
#include "cli/verbs.h"

namespace sentinel::cli {
namespace {

Form form_of(const Verb& verb) {
  Form form;
  verb.declare(form);
  return form;
}

// "-o,--output": both.
std::vector<std::string> names_of(const Row& row) {
  const auto comma = row.names.find(',');
  if (comma == row.names.npos) return {row.names};
  return {row.names.substr(0, comma), row.names.substr(comma + 1)};
}

const std::vector<std::string>& values_of(const Row& row) {
  return row.choices.empty() ? row.words : row.choices;
}

// The long options and the values of arguments.
std::vector<std::string> words_of(const Form& form) {
  std::vector<std::string> words;
  for (const auto& row : form.rows) {
    if (row.is_option())
      words.push_back(names_of(row).back());
    else
      words.insert(words.end(), values_of(row).begin(), values_of(row).end());
  }
  return words;
}

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const auto& verb : verbs()) names.emplace_back(verb.name);
  return names;
}

// What stands before a value of the row. An option that may stand alone has it after "=" only.
std::vector<std::string> bash_patterns(const Verb& verb, const Row& row) {
  std::vector<std::string> patterns;
  for (const auto& name : names_of(row)) {
    patterns.push_back(fmt::format("\"{} {}=\"", verb.name, name));
    if (row.alone.empty()) patterns.push_back(fmt::format("\"{} {}\"", verb.name, name));
  }
  return patterns;
}

// After an option its words, or files where it has none; elsewhere the options.
std::string bash_cases(const Verb& verb) {
  const auto form = form_of(verb);
  const auto one = [](const auto& patterns, const auto& words) {
    return fmt::format("    {}) words=\"{}\" ;;\n", fmt::join(patterns, "|"),
                       fmt::join(words, " "));
  };
  std::vector<std::string> of_files;
  std::string cases;
  for (const auto& row : form.rows) {
    if (!row.is_option() || !row.takes_value()) continue;
    const auto patterns = bash_patterns(verb, row);
    if (values_of(row).empty())
      of_files.insert(of_files.end(), patterns.begin(), patterns.end());
    else
      cases += one(patterns, values_of(row));
  }
  if (!of_files.empty()) cases += one(of_files, std::vector<std::string>{});
  return cases + one(std::vector{fmt::format("\"{} \"*", verb.name)}, words_of(form));
}

// Files complete beside the words; after "--" comes an ordinary command. Bash makes three words of
// "--move=copy".
std::string bash() {
  std::string cases;
  for (const auto& verb : verbs()) cases += bash_cases(verb);
  return fmt::format(
      "_sentinel() {{\n"
      "  local words=\"\" current=\"${{COMP_WORDS[COMP_CWORD]}}\" before\n"
      "  before=\"${{COMP_WORDS[COMP_CWORD-1]}}\"\n"
      "  if [ \"$current\" = \"=\" ]; then\n"
      "    before+=\"=\" current=\"\"\n"
      "  elif [ \"$before\" = \"=\" ]; then\n"
      "    before=\"${{COMP_WORDS[COMP_CWORD-2]}}=\"\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]}} $before\" in\n{}"
      "  esac\n"
      "  case \" ${{COMP_WORDS[*]:0:$COMP_CWORD}} \" in *\" -- \"*) words=\"\" ;; esac\n"
      "  [ \"$COMP_CWORD\" -eq 1 ] && words=\"{}\"\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}}\n"
      "complete -o default -o bashdefault -F _sentinel sentinel\n",
      cases, fmt::join(verb_names(), " "));
}

std::string zsh() { return "autoload -U +X bashcompinit && bashcompinit\n" + bash(); }

// "-s o -l output -x -a 'auto copy'".
std::string fish_option(const Row& row) {
  std::string text;
  for (const auto& name : names_of(row))
    text += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2))
                                   : fmt::format(" -s {}", name.substr(1));
  if (!row.takes_value()) return text;
  const auto& values = values_of(row);
  if (row.alone.empty()) text += values.empty() ? " -r" : " -x";
  return values.empty() ? text : text + fmt::format(" -a '{}'", fmt::join(values, " "));
}

std::string fish() {
  std::string text;
  for (const auto& verb : verbs()) {
    text += fmt::format("complete -c sentinel -n __fish_use_subcommand -a {} -d '{}'\n", verb.name,
                        verb.purpose);
    const auto form = form_of(verb);
    for (const auto& row : form.rows) {
      const auto rest = row.is_option() ? fish_option(row)
                                        : fmt::format(" -a '{}'", fmt::join(values_of(row), " "));
      if (row.is_option() || !values_of(row).empty())
        text += fmt::format("complete -c sentinel -n '__fish_seen_subcommand_from {}'{}\n",
                            verb.name, rest);
    }
  }
  return text;
}

}  // namespace

Action declare_completion(Form& form) {
  const auto shell = std::make_shared<std::string>();
  form.rows = {{.names = "SHELL",
                .value = "SHELL",
                .meaning = "the shell that is to complete",
                .into = shell.get(),
                .required = true,
                .choices = {"bash", "zsh", "fish"}}};
  return [shell] { return print(*shell == "bash" ? bash() : *shell == "zsh" ? zsh() : fish()); };
}

}  // namespace sentinel::cli
