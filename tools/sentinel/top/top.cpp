// `sentinel top`: running sessions, live. Asks nothing of them: it reads what they publish.
#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>

#include <charconv>
#include <memory>
#include <optional>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "runtime/step/trial.h"
#include "sentinel/error.h"
#include "top/figures.h"
#include "top/full_screen.h"
#include "top/view.h"

namespace sentinel::cli {
namespace {

constexpr int kRenewMs = 250;
constexpr std::size_t kRowsOfOnce = 40;

struct Settings {
  std::string process;
  bool once = false, json = false;
};

std::optional<pid_t> process_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  pid_t process = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), process);
  if (error != std::errc() || end != text.data() + text.size() || process <= 0)
    throw UsageError(fmt::format("{} is not the number of a process", text));
  return process;
}

void require_some(const std::vector<Session>& sessions, const std::string& process) {
  if (!sessions.empty()) return;
  throw Error(process.empty()
                  ? "no session of yours is running; sentinel run -- python3 train.py begins one"
                  : fmt::format("neither process {} nor one below it is a session of yours; "
                                "sentinel top lists those that run",
                                process));
}

bool shows_blocks() {
  setlocale(LC_CTYPE, "");
  return std::string_view(nl_langinfo(CODESET)) == "UTF-8";
}

int print_once(const std::vector<Session>& sessions) {
  const auto columns = std::max<std::size_t>(kFewestColumns, terminal_style().width);
  std::string text;
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    const std::vector<Session> one{sessions[i]};
    Canvas canvas(columns, kRowsOfOnce);
    draw(canvas, {.sessions = one, .now_us = now_us(), .blocks = shows_blocks(), .keys = false});
    text += (i > 0 ? "\n" : "") + canvas.plain();
  }
  return print(text);
}

int watch(Sessions& sessions) {
  FullScreen screen;
  const bool blocks = shows_blocks();
  std::size_t selected = 0;
  for (;;) {
    const auto& now = sessions.look();
    selected = std::min(selected, now.empty() ? 0 : now.size() - 1);
    Canvas canvas(screen.columns(), screen.rows());
    draw(canvas, {.sessions = now, .selected = selected, .now_us = now_us(), .blocks = blocks});
    screen.show(canvas.painted());
    switch (screen.wait(kRenewMs)) {
      case FullScreen::Key::quit:
        return kDone;
      case FullScreen::Key::up:
        selected -= selected > 0;
        break;
      case FullScreen::Key::down:
        ++selected;
        break;
      default:
        break;
    }
  }
}

int top(const Settings& s) {
  for (const auto& reason : folders_passed_over()) fmt::print(stderr, "sentinel: {}\n", reason);
  Sessions sessions(process_of(s.process));
  if (!s.json && !s.once) {
    if (!s.process.empty()) require_some(sessions.look(), s.process);
    return watch(sessions);
  }
  const auto& now = sessions.look();
  if (s.json) return print(json_of(now, now_us()));
  require_some(now, s.process);
  return print_once(now);
}

}  // namespace

Action declare_top(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      {"PID", "PID", "a training's process, or `sentinel run` above it; all if absent",
       &s->process},
      {"--once", "", "one screen as text, then end", &s->once},
      {"--json", "", "the figures as JSON, then end", &s->json},
  };
  return [s] { return top(*s); };
}

}  // namespace sentinel::cli
