// Keeps the files of the sessions open: one that was removed still tells the last figures.
#include "top/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

constexpr std::size_t kMostEnded = 8;

// "17 (a name) S 16 ...": the parent; 0: there is none to be found.
pid_t parent_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');
  pid_t parent = 0;
  if (name_end != text.npos && std::sscanf(text.c_str() + name_end + 1, " %*c %d", &parent) != 1)
    return 0;
  return parent;
}

bool has_ended(const Session& session) {
  return session.life == Session::Life::over || session.life == Session::Life::died;
}

void renew(Session& session, StatusReader& reader) {
  if (has_ended(session)) return;
  // Before the figures are read: those of a process that has ended by then are its last.
  const bool lives = reader.writer().has_value();
  const auto found = reader.read();
  session.status = reader.status();
  session.version = reader.version();
  using Found = StatusReader::Found;
  using Life = Session::Life;
  if (session.status.state == StatusState::over)
    session.life = Life::over;
  else if (!lives)
    session.life = Life::died;
  else if (found == Found::other_version)
    session.life = Life::other_version;
  else if (found == Found::status)
    session.life = Life::runs;
}

}  // namespace

bool Sessions::wanted(pid_t process) const {
  if (!process_) return true;
  for (int i = 0; i < 64 && process > 0; ++i, process = parent_of(process))
    if (process == *process_) return true;
  return false;
}

void Sessions::find() {
  for (const auto& file : running_sessions()) {
    const bool known = std::ranges::any_of(watched_, [&](const auto& one) {
      return one->reader.path() == file.path && !has_ended(one->session);
    });
    if (known || !wanted(file.process)) continue;
    try {
      watched_.push_back(
          std::make_unique<Watched>(Watched{{.process = file.process}, StatusReader(file.path)}));
    } catch (const Error&) {  // it has gone since
    }
  }
}

const std::vector<Session>& Sessions::look() {
  find();
  for (auto& one : watched_) renew(one->session, one->reader);
  auto ended =
      std::ranges::count_if(watched_, [](const auto& one) { return has_ended(one->session); });
  std::erase_if(watched_, [&](const auto& one) {
    return has_ended(one->session) && ended > static_cast<std::ptrdiff_t>(kMostEnded) &&
           ended-- > 0;
  });
  sessions_.clear();
  for (const auto& one : watched_) sessions_.push_back(one->session);
  return sessions_;
}

}  // namespace sentinel::cli
