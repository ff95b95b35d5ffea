// Prints results, messages and progress, each to its stream.
#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/output.h"
#include "base/text.h"
#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

constexpr int kNarrowest = 40, kWidest = 1000;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int width() {
  winsize size{};
  int columns = std::atoi(variable("COLUMNS").c_str());
  if (columns <= 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns <= 0 ? RenderStyle{}.width : std::clamp(columns, kNarrowest, kWidest);
}

// /dev/stdout, for one.
bool is_stdout(const std::string& path) {
  struct stat named {
  }, out{};
  return stat(path.c_str(), &named) == 0 && fstat(STDOUT_FILENO, &out) == 0 &&
         named.st_dev == out.st_dev && named.st_ino == out.st_ino;
}

}  // namespace

void say(const std::string& text) {
  std::fprintf(stderr, "sentinel: %s\n", printable(text).c_str());
}

int print(const std::string& text) {
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!whole || std::fflush(stdout) != 0) throw Error("could not write to stdout", errno);
  return 0;
}

int print_to(const std::string& path, const std::string& text) {
  if (path.empty() || path == "-" || is_stdout(path)) return print(text);
  write_file(path, text, fmt::format("could not write {}", path), Readers::everybody);
  return 0;
}

RenderStyle terminal_style() {
  const bool colour =
      isatty(STDOUT_FILENO) != 0 && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
  return {.colour = colour, .width = width()};
}

Progress::Progress() : shown_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void Progress::now(const std::string& text) {
  if (shown_) std::fprintf(stderr, "\r\x1b[Ksentinel: %s …", printable(text).c_str());
}

}  // namespace sentinel::cli
