// Parses arguments by a form's rows with CLI11, and protects files that are read from being
// written.
#include "cli/form.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

namespace sentinel::cli {
namespace {

constexpr std::uint64_t kLargest = 0xffff'fffe;

// Infinities and what is no number would pass a comparison.
std::string not_a_number_from_0(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size() &&
                    std::isfinite(value) && value >= 0;
  return good ? "" : text + " is not a number from 0 on";
}

struct Declare {
  CLI::App& app;
  const Row& row;

  CLI::Option* operator()(bool* into) const { return app.add_flag(row.names, *into, row.meaning); }
  // An option has one value for each mention: what follows is an argument.
  CLI::Option* operator()(std::vector<std::string>* into) const {
    auto* option = app.add_option(row.names, *into, row.meaning);
    return row.is_option() ? option->delimiter(',')->allow_extra_args(false) : option;
  }
  CLI::Option* operator()(std::string* into) const {
    if (row.alone.empty()) return app.add_option(row.names, *into, row.meaning);
    return app.add_flag(row.names + "{" + row.alone + "}", *into, row.meaning);
  }
  // A number below zero would come out as a very large one.
  CLI::Option* operator()(std::uint64_t* into) const {
    return app.add_option(row.names, *into, row.meaning)
        ->check(CLI::Range(std::uint64_t{0}, kLargest));
  }
  CLI::Option* operator()(double* into) const {
    return app.add_option(row.names, *into, row.meaning)
        ->check(CLI::Validator(not_a_number_from_0, "number"));
  }
};

void declare(CLI::App& app, const Row& row) {
  auto* option = std::visit(Declare{app, row}, row.into);
  option->required(row.required);
  if (!row.choices.empty()) option->check(CLI::IsMember(row.choices));
}

// "-- CMD" ends what is ours; without a command of its own a verb has no use for it.
void split_command(std::vector<std::string>& arguments, std::vector<std::string>& command) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  if (end == arguments.end())
    throw UsageError("the command to run is missing: write it after --, as in -- python3 train.py");
  command.assign(end + 1, arguments.end());
  if (command.empty()) throw UsageError("nothing follows --: the command to run is missing");
  arguments.erase(end, arguments.end());
}

std::vector<std::string> words_of(const Row& row) {
  if (const auto* one = std::get_if<std::string*>(&row.into)) return {**one};
  if (const auto* several = std::get_if<std::vector<std::string>*>(&row.into)) return **several;
  return {};
}

// A file that is not there yet is lost by nobody; a terminal or a pipe is not replaced.
bool same_file(const std::string& path, const std::string& other) {
  struct stat first {
  }, second{};
  return stat(path.c_str(), &first) == 0 && stat(other.c_str(), &second) == 0 &&
         S_ISREG(first.st_mode) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

void Form::parse(std::vector<std::string> arguments) {
  if (takes_command) split_command(arguments, command);
  CLI::App app;
  app.set_help_flag();
  for (const auto& row : rows) declare(app, row);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  protect_inputs();
}

void Form::protect_inputs() const {
  for (const Row& output : rows) {
    if (!output.writes) continue;
    const auto& path = *std::get<std::string*>(output.into);
    const auto is_output = [&](const std::string& word) { return same_file(path, word); };
    const bool named =
        std::ranges::any_of(command, is_output) || std::ranges::any_of(rows, [&](const Row& row) {
          return &row != &output && std::ranges::any_of(words_of(row), is_output);
        });
    if (named)
      throw UsageError(
          fmt::format("{} {}: that file is used by the same command, and would be "
                      "lost; name another one",
                      output.names.substr(output.names.rfind(',') + 1), path));
  }
}

}  // namespace sentinel::cli
