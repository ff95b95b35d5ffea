// What is printed, and for whom: results go to stdout, all else to stderr; colours and progress to
// terminals only.
#pragma once

#include <string>

#include "sentinel/reporter.h"

namespace sentinel::cli {

void say(const std::string& text);  // "sentinel: text" on stderr

// Text on stdout. Answers the exit status; a full disk or a closed pipe is a failure.
int print(const std::string& text);

// Text to a file, or to stdout where `path` is empty or "-". Throws Error.
int print_to(const std::string& path, const std::string& text);

// For stdout: colours on a terminal without NO_COLOR; $COLUMNS, else the terminal's width.
RenderStyle terminal_style();

// What goes on during long work: one line on a terminal that the next one replaces, and nothing in
// a pipe.
class Progress {
 public:
  Progress();
  ~Progress();  // takes the line away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void now(const std::string& text);

 private:
  bool shown_;
};

}  // namespace sentinel::cli
