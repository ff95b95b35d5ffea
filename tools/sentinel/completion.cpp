// Completion scripts, from the table of verbs and their forms.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "terminal.h"
#include "verbs.h"

namespace sentinel::cli {
namespace {

std::vector<std::string> words_of(const Verb& verb) {
  Form form;
  verb.declare(form);
  std::vector<std::string> words;
  for (const auto& row : form.rows) {
    if (row.is_option())
      words.push_back(row.names.substr(row.names.find("--")));
    else
      words.insert(words.end(), row.choices.begin(), row.choices.end());
  }
  return words;
}

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const auto& verb : verbs()) names.emplace_back(verb.name);
  return names;
}

// Files complete beside the words; after "--" comes an ordinary command.
std::string bash() {
  std::string cases;
  for (const auto& verb : verbs())
    cases += fmt::format("    {}) words=\"{}\" ;;\n", verb.name, fmt::join(words_of(verb), " "));
  return fmt::format(
      "_sentinel() {{\n"
      "  local words current=\"${{COMP_WORDS[COMP_CWORD]}}\"\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}"
      "  esac\n"
      "  [ \"$COMP_CWORD\" -eq 1 ] && words=\"{}\"\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}}\n"
      "complete -o default -o bashdefault -F _sentinel sentinel\n",
      cases, fmt::join(verb_names(), " "));
}

std::string zsh() { return "autoload -U +X bashcompinit && bashcompinit\n" + bash(); }

std::string fish() {
  std::string text;
  for (const auto& verb : verbs()) {
    text += fmt::format("complete -c sentinel -n __fish_use_subcommand -a {} -d '{}'\n", verb.name,
                        verb.purpose);
    for (const auto& word : words_of(verb))
      text += fmt::format("complete -c sentinel -n '__fish_seen_subcommand_from {}' {} {}\n",
                          verb.name, word.starts_with("--") ? "-l" : "-a",
                          word.starts_with("--") ? word.substr(2) : word);
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
