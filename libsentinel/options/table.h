// The table of options: one row for everything that can be set from outside. The command line of
// `sentinel record`, `run` and `fit`, the reader of the environment, the help, the completion, the
// manual page and docs/reference/options.md are made from it; none of them knows an option that has
// no row. The command turns options into their variables; the library in the training process reads
// these.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sentinel {

struct SessionOptions;  // session_options.h

// How a value is written. The command makes paths absolute, for its child may change its directory.
enum class OptionType {
  text,
  choice,        // one of the row's words
  number,        // whole, within the row's limits
  bytes,         // "512M"
  flag,          // 0 or 1; on the command line without a value: 1, or what it means alone
  path,          // a file to read
  written,       // a file to write; "%p" in it is the process id, "%r" its rank
  paths,         // directories, with commas between them
  name_or_path,  // a file where it has a slash or ends in .toml
  policy,        // the name of a policy; policy_names() are its words
};

enum OptionVerbs : unsigned { kOfNone = 0, kOfRecord = 1, kOfRun = 2, kOfBoth = 3 };  // fit: run's

// Finds a row's field in the options that are read. None: options.cpp reads the row by hand.
template <class T>
using FieldOf = T& (*)(SessionOptions&);
using OptionField = std::variant<std::monostate, FieldOf<std::string>, FieldOf<bool>,
                                 FieldOf<std::uint32_t>, FieldOf<std::uint64_t>>;

// Texts end without a full stop. In `more`, backticks stand around words to write as they are.
struct OptionRow {
  const char* names = "";  // "-o,--output"; empty: the variable alone
  const char* variable;
  OptionType type = OptionType::text;
  const char* value = "";       // stands for the value in help: "FILE"
  const char* fallback = "";    // the value of a variable that is unset or empty
  const char* otherwise = "";   // without a fallback: what holds then, in words
  OptionVerbs verbs = kOfNone;  // that take the option
  const char* help;             // one line; what holds for each verb that takes the option
  const char* absent = "";      // what record, run and fit do without the option: ends their line
  const char* more = "";        // for the manual page and the reference alone
  const char* words = "";       // "auto|copy": a choice's all; of other types those to complete
  const char* alone = "";       // the value of the option without one; one follows "=" then
  std::uint64_t least = 0, most = 0;  // of a number
  bool internal = false;              // set by the command itself, or for tests
  OptionField into = {};
};

std::span<const OptionRow> option_table();
const OptionRow& option_row(std::string_view variable);  // throws Error where there is none

// The line of help of record, run and fit.
std::string help_of(const OptionRow&);
// The same of a verb that does something else without the option, or nothing to tell of.
std::string help_of(const OptionRow&, std::string_view absent);
std::string flag_of(const OptionRow&);  // "--output": the longer name; the variable's without one
std::vector<std::string> words_of(const OptionRow&);

// What the environment sets, else the fallback.
std::string value_of(const OptionRow&);

// Throws Error where the environment sets a choice to none of its words. The library itself takes
// an unknown word for the default where it can.
void require_known_words();

}  // namespace sentinel
