// Lays the screen out from above: sessions, figures, the memory over the step, what moves.
#include "top/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/checked.h"
#include "base/units.h"
#include "report/text/text.h"
#include "top/graph.h"

namespace sentinel::cli {
namespace {

constexpr std::size_t kLabel = 11;          // columns of the figures' names
constexpr std::size_t kWide = 100;          // columns, for what is left out elsewhere
constexpr std::size_t kMostGraphRows = 14;  // of the memory over the step
constexpr std::size_t kRateSteps = 10;      // that the present rate is of
constexpr double kMostOfUsual = 2;          // of the usual step's time, that a full column is
constexpr std::size_t kScale = 17;          // columns of what a full column is
constexpr double kQuietUs = 5e6;            // without a step's end, to be worth a word

std::string plural(std::uint64_t count, const char* word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string duration(double us) {
  const auto seconds = saturated(us / 1e6);
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
}

std::string step_time(double us) {
  return us >= 1e6 ? fmt::format("{:.2f} s", us / 1e6) : fmt::format("{:.1f} ms", us / 1e3);
}

std::string percent(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0);
}

std::string rate(double us) { return us > 0 ? fmt::format("{:.3g}", 1e6 / us) : "-"; }

std::string bandwidth(std::uint64_t bytes, double us) {
  if (bytes == 0 || us <= 0) return "";
  return fmt::format("{}/s", print_bytes(saturated(static_cast<double>(bytes) / us * 1e6)));
}

// Of the last steps, the latest last.
std::vector<StatusStep> history(const Status& status) {
  const auto count = std::min<std::uint64_t>(status.steps, kStatusHistory);
  std::vector<StatusStep> steps;
  for (auto n = status.steps - count; n < status.steps; ++n)
    steps.push_back(status.history[n % kStatusHistory]);
  return steps;
}

double recent_us(const std::vector<StatusStep>& steps) {
  const auto count = std::min(steps.size(), kRateSteps);
  double us = 0;
  for (auto i = steps.size() - count; i < steps.size(); ++i) us += steps[i].us;
  return count > 0 ? us / static_cast<double>(count) : 0;
}

// The longest step, but no more than twice the usual one: a first step of many times the others'
// length leaves these to be seen.
double full_column(std::vector<double> times) {
  std::erase_if(times, [](double us) { return !std::isfinite(us); });
  if (times.empty()) return 0;
  std::ranges::sort(times);
  const auto usual = times[times.size() / 2];
  return usual > 0 ? std::min(times.back(), kMostOfUsual * usual) : times.back();
}

std::string guide(const Status& status) {
  if (status.state == StatusState::left) return "no longer managed";
  switch (status.guide) {
    case StatusGuide::plan:
      return status.plan.kinds > 1 ? fmt::format("one of {} plans", status.plan.kinds)
                                   : "under a plan";
    case StatusGuide::pager:
      return "the policy pages by demand";
    case StatusGuide::none:
      break;
  }
  return "no plan yet";
}

class Screen {
 public:
  Screen(Canvas& canvas, const View& view) : canvas_(canvas), view_(view) {}

  void draw() {
    if (canvas_.columns() < kFewestColumns || canvas_.rows() < kFewestRows) return too_small();
    if (view_.sessions.empty()) return waiting();
    const auto& session = view_.sessions[std::min(view_.selected, view_.sessions.size() - 1)];
    list();
    head(session);
    if (session.life == Session::Life::other_version) return other_version(session);
    if (session.life == Session::Life::begins) return begins();
    figures(session.status);
    memory(session.status);
    moves(session.status);
  }

 private:
  // The next free row, while there is one.
  std::size_t next() { return row_++; }
  std::size_t left() const { return canvas_.rows() - std::min(row_, canvas_.rows()); }

  void label(std::size_t row, const char* text) { canvas_.put(row, 1, text, Ink::bold); }

  void too_small() {
    canvas_.put(
        0, 0,
        fmt::format("The terminal has {} columns and {} rows;", canvas_.columns(), canvas_.rows()));
    canvas_.put(1, 0, fmt::format("this view needs {} and {}.", kFewestColumns, kFewestRows));
  }

  void waiting() {
    canvas_.put(0, 1, "sentinel top", Ink::bold);
    if (view_.keys) canvas_.put_right(0, "q quits ", Ink::dim);
    canvas_.put(2, 1, "No session of yours is running. This one would be shown here:");
    canvas_.put(4, 3, "sentinel run --fast 20% -- python3 train.py");
  }

  // Where there are several; the selected one is among those shown.
  void list() {
    const auto& all = view_.sessions;
    if (all.size() < 2) return;
    const auto shown =
        std::min<std::size_t>(all.size(), std::max<std::size_t>(2, canvas_.rows() / 5));
    const auto selected = std::min(view_.selected, all.size() - 1);
    const auto first = selected < shown ? 0 : selected - shown + 1;
    canvas_.put(row_, 1, fmt::format("{} sessions", all.size()), Ink::bold);
    if (view_.keys) canvas_.put_right(row_, "up, down: another   q quits ", Ink::dim);
    ++row_;
    for (auto i = first; i < first + shown; ++i) list_row(all[i], i == selected);
    ++row_;
  }

  void list_row(const Session& session, bool selected) {
    const auto row = next();
    const auto& status = session.status;
    const auto columns = canvas_.columns();
    const auto ink = selected ? Ink::bold : Ink::plain;
    canvas_.put(row, 1, selected ? ">" : " ", ink);
    canvas_.put(row, 3, lead(std::to_string(session.process), 7), ink);
    canvas_.put(row, 12, clip(printable(status.program.command.view()), columns - 12 - 46), ink);
    canvas_.put(row, columns - 45, lead(life_word(session), 13),
                session.life == Session::Life::died ? Ink::warning : ink);
    canvas_.put(row, columns - 31, lead(step_time(status.last.us), 10), ink);
    canvas_.put(row, columns - 20, lead(print_bytes(status.memory.held_bytes), 9), ink);
    if (status.memory.limit_bytes != 0)
      canvas_.put(row, columns - 11, fmt::format("of {}", print_bytes(status.memory.limit_bytes)),
                  ink);
  }

  static std::string life_word(const Session& session) {
    switch (session.life) {
      case Session::Life::begins:
        return "begins";
      case Session::Life::runs:
        return fmt::format("step {}", session.status.steps);
      case Session::Life::over:
        return "over";
      case Session::Life::died:
        return "has died";
      case Session::Life::other_version:
        return "other version";
    }
    return "";
  }

  void head(const Session& session) {
    const auto& status = session.status;
    const bool several = view_.sessions.size() > 1;
    const auto row = next();
    const auto column = canvas_.put(row, 1, fmt::format("{:<7}", session.process), Ink::bold) + 1;
    const auto room = canvas_.columns() - column - (several || !view_.keys ? 1 : 10);
    canvas_.put(row, column, clip(printable(status.program.command.view()), room), Ink::bold);
    if (!several && view_.keys) canvas_.put_right(row, "q quits ", Ink::dim);
    if (session.life != Session::Life::other_version) about(session);
    banner(session);
    ++row_;
  }

  void about(const Session& session) {
    const auto& status = session.status;
    auto text = printable(status.program.framework.view());
    if (!status.program.policy.view().empty())
      text += fmt::format("{}policy {}", text.empty() ? "" : ", ",
                          printable(status.program.policy.view()));
    if (!status.program.slow.view().empty())
      text += fmt::format(", {} over {}", printable(status.program.fast.view()),
                          printable(status.program.slow.view()));
    if (status.program.ranks > 1)
      text += fmt::format(", rank {} of {}", status.program.rank, status.program.ranks);
    const bool ended = session.life == Session::Life::over || session.life == Session::Life::died;
    const auto until = ended ? status.step_ended_us : view_.now_us;
    const auto ran = fmt::format("runs for {} ", duration(until - status.program.began_us));
    const auto row = next();
    canvas_.put(row, 1, clip(text, canvas_.columns() - 3 - ran.size()), Ink::dim);
    if (!ended) canvas_.put_right(row, ran, Ink::dim);
  }

  void banner(const Session& session) {
    std::string text;
    if (session.life == Session::Life::died)
      text = "The process has ended before its training had. These are its last figures.";
    if (session.life == Session::Life::over)
      text = "The training is over. These are its last figures.";
    const auto quiet = view_.now_us - session.status.step_ended_us;
    const bool runs =
        session.life == Session::Life::runs && session.status.state == StatusState::trains;
    if (text.empty() && runs && quiet > std::max(kQuietUs, 3 * session.status.last.us))
      text = fmt::format("No step has ended for {}.", duration(quiet));
    if (text.empty()) return;
    const auto row = next();
    canvas_.fill(row, session.life == Session::Life::died ? Ink::banner : Ink::warning);
    canvas_.put(row, 1, text, session.life == Session::Life::died ? Ink::banner : Ink::warning);
  }

  void begins() { canvas_.put(row_, 1, "It begins: nothing has been published yet."); }

  void other_version(const Session& session) {
    canvas_.put(row_, 1,
                fmt::format("It publishes version {} of the figures; this command knows {}.",
                            session.version, kStatusVersion));
    canvas_.put(row_ + 1, 1, "Use the `sentinel` of the installation that runs the training.");
  }

  void figures(const Status& status) {
    budget(status);
    steps(status);
    waits(status);
    const auto planned = [&](std::uint64_t bytes) {
      return status.guide == StatusGuide::plan ? print_bytes(bytes) : "-";
    };
    const auto moved = [&](std::uint64_t bytes) {
      return status.steps == 0 ? "-" : print_bytes(bytes);
    };
    table_head();
    direction("in", moved(status.last.in_bytes), planned(status.plan.in_bytes),
              bandwidth(status.last.read_bytes, status.last.read_us), moved(status.total.in_bytes));
    direction("out", moved(status.last.out_bytes), planned(status.plan.out_bytes),
              bandwidth(status.last.written_bytes, status.last.written_us),
              moved(status.total.out_bytes));
    ++row_;
  }

  void budget(const Status& status) {
    const auto row = next();
    label(row, "Memory");
    if (status.memory.limit_bytes == 0) {
      canvas_.put(row, kLabel + 1,
                  fmt::format("{} held, no limit yet", print_bytes(status.memory.held_bytes)));
      return;
    }
    auto text =
        fmt::format("{} of {} held; | peak {}", print_bytes(status.memory.held_bytes),
                    print_bytes(status.memory.limit_bytes), print_bytes(status.memory.peak_bytes));
    if (status.memory.unlimited_bytes != 0 && canvas_.columns() >= kWide)
      text += fmt::format(" ({} unlimited)", print_bytes(status.memory.unlimited_bytes));
    const auto room = canvas_.columns() - kLabel - 2;
    const auto width = room > text.size() + 2 ? room - text.size() - 2 : 0;
    draw_bar(canvas_, {row, kLabel + 1, 1, width}, static_cast<double>(status.memory.held_bytes),
             static_cast<double>(status.memory.peak_bytes),
             static_cast<double>(status.memory.limit_bytes), view_.blocks);
    canvas_.put(row, kLabel + 1 + (width > 0 ? width + 2 : 0), text);
  }

  void steps(const Status& status) {
    const auto row = next();
    label(row, "Steps");
    if (status.steps == 0) {
      canvas_.put(row, kLabel + 1, "none has ended yet");
      return;
    }
    const auto all = history(status);
    auto text =
        fmt::format("{} ended, the last ({}) in {}; {}", status.steps,
                    printable(status.phase.view()), step_time(status.last.us), guide(status));
    canvas_.put(row, kLabel + 1, text);
    const auto second = next();
    const bool planned = status.guide == StatusGuide::plan && status.plan.us > 0;
    canvas_.put(second, kLabel + 1,
                fmt::format("{} steps/s (last {}){}", rate(recent_us(all)),
                            std::min(all.size(), kRateSteps),
                            planned ? fmt::format(" of {} planned ({} a step)",
                                                  rate(status.plan.us), step_time(status.plan.us))
                                    : ""));
    columns_of_steps(all);
  }

  void columns_of_steps(const std::vector<StatusStep>& all) {
    const auto room = canvas_.columns() - kLabel - 2 - kScale;
    const auto shown = std::span(all).last(std::min(all.size(), room));
    std::vector<double> times, waits;
    for (const auto& step : shown) {
      times.push_back(step.us);
      waits.push_back(step.stall_us);
    }
    const auto most = full_column(times);
    const bool longer = std::ranges::any_of(times, [&](double us) { return us > most; });
    const auto row = next(), second = next();
    canvas_.put(row, 1, "  time", Ink::dim);
    canvas_.put(second, 1, "  waited", Ink::dim);
    draw_columns(canvas_, {row, kLabel + 1, 1, room}, times, most, Ink::held, view_.blocks);
    canvas_.put(
        row, kLabel + 2 + shown.size(),
        fmt::format("{} {} {}", view_.blocks ? "█" : "#", longer ? "from" : "=", step_time(most)),
        Ink::dim);
    if (std::ranges::any_of(waits, [](double us) { return us > 0; }))
      draw_columns(canvas_, {second, kLabel + 1, 1, room}, waits, most, Ink::warning, view_.blocks);
    else
      canvas_.put(second, kLabel + 1, "none", Ink::dim);
  }

  void waits(const Status& status) {
    const auto& last = status.last;
    const auto& total = status.total;
    auto row = next();
    label(row, "Last step");
    canvas_.put(row, kLabel + 1, status.steps == 0 ? "-" : cost(last));
    row = next();
    label(row, "All steps");
    canvas_.put(row, kLabel + 1, status.steps == 0 ? "-" : cost(total));
  }

  static std::string cost(const StatusFigures& figures) {
    auto text = fmt::format("{} waited for memory ({}), {}", step_time(figures.stall_us),
                            percent(figures.stall_us, figures.us), plural(figures.faults, "fault"));
    if (figures.replays != 0)
      text +=
          fmt::format(", {} ({})", plural(figures.replays, "replay"), step_time(figures.replay_us));
    return text;
  }

  static constexpr std::size_t kCells = 15;
  void cells(std::size_t row, std::initializer_list<std::string> texts, Ink ink) {
    std::size_t column = kLabel - 3;
    for (const auto& text : texts) {
      canvas_.put(row, column, lead(text, kCells - 1), ink);
      column += kCells;
    }
  }
  void table_head() {
    const auto row = next();
    label(row, "Moved");
    cells(row, {"last step", "planned", "while moving", "all steps"}, Ink::dim);
  }
  void direction(const char* name, const std::string& last, const std::string& planned,
                 const std::string& speed, const std::string& total) {
    const auto row = next();
    canvas_.put(row, 3, name);
    cells(row, {last, planned, speed.empty() ? "-" : speed, total}, Ink::plain);
  }

  void memory(const Status& status) {
    if (status.plan.points == 0 || status.guide != StatusGuide::plan) return;
    const auto for_moves =
        std::min<std::size_t>(status.plan.tensors == 0 ? 0 : status.plan.tensors + 2, left() / 2);
    const auto rows = std::min(kMostGraphRows, left() - std::min(left(), for_moves + 2));
    if (rows < 3) return;
    const auto row = next();
    label(row, "Memory over a step");
    auto column = canvas_.put(row, 20, fmt::format("({} ops):  ", status.plan.ops));
    column = canvas_.put(row, column, view_.blocks ? "█" : "#", Ink::held);
    column = canvas_.put(row, column, " planned in fast memory  ");
    column = canvas_.put(row, column, view_.blocks ? "░" : ":", Ink::needed);
    column = canvas_.put(row, column, " elsewhere  ");
    column = canvas_.put(row, column, view_.blocks ? "─" : "-", Ink::limit);
    canvas_.put(row, column, " budget");
    draw_memory(canvas_, {row_, 1, rows, canvas_.columns() - 2},
                std::span(status.plan.memory).first(status.plan.points), status.memory.limit_bytes,
                view_.blocks);
    row_ += rows;
    const auto axis = next();
    canvas_.put(axis, 1 + kAxisColumns, "op 0", Ink::dim);
    if (status.plan.ops > 1)
      canvas_.put_right(axis, fmt::format("op {} ", status.plan.ops - 1), Ink::dim);
    if (left() > for_moves) ++row_;
  }

  static std::string back(const StatusTensor& one) {
    return fmt::format("{}{}", one.returns, one.returns < one.leaves ? " (next step)" : "");
  }

  static constexpr std::size_t kFigures = 41, kFiguresAt = 72;  // columns of the tensors' figures
  void moves(const Status& status) {
    if (status.guide != StatusGuide::plan || left() < 2) return;
    const auto row = next();
    const auto figures = std::min(canvas_.columns() - kFigures, kFiguresAt);
    label(row, "Moves");
    if (status.plan.tensors == 0) {
      canvas_.put(row, 8, "none: all fits");
      return;
    }
    const auto tell = [&](const char* more) {
      const auto text = plural(status.plan.moved_tensors, "tensor") + " a step" + more;
      canvas_.put(row, 8, clip(text, figures - 4));
    };
    tell("");
    canvas_.put(row, figures, fmt::format("{:>10}{:>12}{:>16}", "bytes", "after op", "back for"),
                Ink::dim);
    const auto shown = std::min<std::size_t>(status.plan.tensors, left());
    for (std::size_t i = 0; i < shown; ++i) {
      const auto& one = status.plan.moves[i];
      const auto line = next();
      canvas_.put(line, 3, clip(printable(one.name.view()), figures - 4));
      canvas_.put(line, figures,
                  fmt::format("{:>10}{:>12}{:>16}", print_bytes(one.bytes), one.leaves, back(one)));
      if (one.remade != 0) canvas_.put(line, figures + kFigures - 2, "*", Ink::limit);
      if (one.remade != 0) remade_ = true;
    }
    if (remade_) tell("; *: made again");
  }

  Canvas& canvas_;
  const View& view_;
  std::size_t row_ = 0;
  bool remade_ = false;
};

}  // namespace

void draw(Canvas& canvas, const View& view) { Screen(canvas, view).draw(); }

}  // namespace sentinel::cli
