// What a verb accepts, as a table: parsing, help and completion are made from it.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sentinel::cli {

constexpr int kDone = 0, kFailed = 1, kWrongUsage = 2, kOwnFailure = 125;

// Thrown for what the user wrote wrongly; everything else that fails is an Error.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Target =
    std::variant<bool*, std::string*, std::uint64_t*, double*, std::vector<std::string>*>;

struct Row {
  std::string names;    // "-o,--output"; a name without dashes is an argument
  std::string value;    // stands for the value in help: "FILE"; empty for flags
  std::string meaning;  // one line; ends without a full stop
  Target into;          // holds the default
  bool required = false;
  std::vector<std::string> choices = {};  // the only values accepted, where there are few
  std::string alone = "";  // what the option means without a value; one follows "=" then
  bool writes = false;     // its value names a file that is written
  std::vector<std::string> words = {};  // to complete, where others are accepted or refused later

  bool is_option() const { return names.front() == '-'; }
  bool takes_value() const { return !std::holds_alternative<bool*>(into); }
};

inline Row written(Row row) {
  row.writes = true;
  return row;
}

struct Form {
  std::vector<Row> rows;
  bool takes_command = false;        // everything after "--" is somebody else's command line
  std::vector<std::string> command;  // that

  // Fills the rows' targets. Throws UsageError; also where a file that would be written is one that
  // another row, or a word of the command, names: it would be lost.
  void parse(std::vector<std::string> arguments);

 private:
  void protect_inputs() const;
};

using Action = std::function<int()>;

}  // namespace sentinel::cli
