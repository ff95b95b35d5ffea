// Uses the sequences that every terminal of today knows, xterm's; asks for nothing back.
#include "top/full_screen.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

constexpr const char* kInstead = "sentinel top --once prints one screen, --json its figures";

volatile sig_atomic_t ends = 0;

void note_end(int) { ends = 1; }
void wake(int) {}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;  // without SA_RESTART: poll() returns
  sigaction(signal, &action, nullptr);
}

void write_all(std::string_view text) {
  while (!text.empty()) {
    const auto written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;  // its end is seen by poll()
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void require_terminal() {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0)
    throw Error(std::string("the full screen needs a terminal as stdin and stdout; ") + kInstead);
  const char* term = std::getenv("TERM");
  const std::string_view name = term != nullptr ? term : "";
  if (name.empty() || name == "dumb")
    throw Error(std::string("this terminal (TERM=") + std::string(name) +
                ") cannot place text on its screen; " + kInstead);
}

winsize size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    size = {.ws_row = 24, .ws_col = 80};
  return size;
}

}  // namespace

FullScreen::FullScreen() {
  require_terminal();
  if (tcgetattr(STDIN_FILENO, &before_) != 0) throw Error("cannot ask the terminal", errno);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) handle(signal, note_end);
  handle(SIGWINCH, wake);
  enter();
}

FullScreen::~FullScreen() { leave(); }

void FullScreen::enter() {
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  shown_.clear();
  write_all("\x1b[?1049h\x1b[?25l\x1b[2J");  // the other screen, without a cursor
}

void FullScreen::leave() {
  write_all("\x1b[0m\x1b[?25h\x1b[?1049l");
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void FullScreen::suspend() {
  leave();
  handle(SIGTSTP, SIG_DFL);
  raise(SIGTSTP);  // this process alone: others of its group may be no concern of a shell's
  enter();
}

std::size_t FullScreen::columns() const { return size().ws_col; }
std::size_t FullScreen::rows() const { return size().ws_row; }

void FullScreen::show(const std::string& painted) {
  if (painted == shown_) return;
  write_all(painted);
  shown_ = painted;
}

FullScreen::Key FullScreen::next_typed() {
  const std::string_view all = typed_;
  // A sequence is "\x1b[" or "\x1bO", maybe figures, and a letter.
  std::size_t length = 1;
  if (all.starts_with("\x1b[") || all.starts_with("\x1bO"))
    length = std::min(all.find_first_not_of("0123456789;", 2), all.size() - 1) + 1;
  const std::string key(all.substr(0, length));
  typed_.erase(0, length);
  if (key == "\x1a") return suspend(), Key::resized;
  if (key == "q" || key == "Q" || key == "\x03" || key == "\x1b") return Key::quit;
  if (key == "\x1b[A" || key == "\x1bOA" || key == "k") return Key::up;
  if (key == "\x1b[B" || key == "\x1bOB" || key == "j" || key == "\t") return Key::down;
  return Key::none;
}

FullScreen::Key FullScreen::wait(int milliseconds) {
  if (ends != 0) return Key::quit;
  if (!typed_.empty()) return next_typed();
  pollfd keys{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const int found = poll(&keys, 1, milliseconds);
  if (ends != 0 || (found > 0 && (keys.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0))
    return Key::quit;
  if (found < 0) return shown_.clear(), Key::resized;
  if (found == 0) return Key::none;
  char text[16];
  const auto length = read(STDIN_FILENO, text, sizeof text);
  if (length <= 0) return length == 0 ? Key::quit : Key::none;
  typed_.assign(text, static_cast<std::size_t>(length));
  return next_typed();
}

}  // namespace sentinel::cli
