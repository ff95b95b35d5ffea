// The terminal as a full screen with keys, for as long as an object lives; afterwards it is as it
// was before, however the program ends, but for SIGKILL.
#pragma once

#include <termios.h>

#include <cstddef>
#include <string>

namespace sentinel::cli {

class FullScreen {
 public:
  enum class Key { none, quit, up, down, resized };

  // Throws Error where stdin or stdout is no terminal, or the terminal can place no text.
  FullScreen();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  std::size_t columns() const;
  std::size_t rows() const;
  void show(const std::string& painted);  // nothing is written where nothing has changed
  // Waits for a key at most so long. The terminal's end and SIGTERM, SIGINT and SIGHUP are `quit`.
  Key wait(int milliseconds);

 private:
  void enter();
  void leave();
  void suspend();  // as Ctrl+Z asks for
  Key next_typed();

  termios before_{};
  std::string shown_;
  std::string typed_;  // keys that arrived together, but for those told
};

}  // namespace sentinel::cli
