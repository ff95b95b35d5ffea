// Copies a session's file, and takes the copy if the counter was the same and even around it.
#include "runtime/status/status_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "runtime/status/status_page.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

constexpr int kTries = 100;  // a session writes for less than a microsecond

bool read_at(int file, void* into, std::size_t bytes, std::size_t at) {
  return pread(file, into, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
}

bool is_trusted(const struct stat& found) { return geteuid() == 0 || found.st_uid == geteuid(); }

// Why no file of the folder is looked at; nothing: they are, or there is no such folder.
std::string objection(const std::string& folder) {
  struct stat found {};
  if (lstat(folder.c_str(), &found) != 0) return {};
  if (!S_ISDIR(found.st_mode)) return fmt::format("{} is no folder", folder);
  if (!is_trusted(found))
    return fmt::format("{} belongs to user {}, not to you", folder, found.st_uid);
  if (access(folder.c_str(), R_OK | X_OK) != 0)
    return fmt::format("{} cannot be read: {}", folder, std::strerror(errno));
  return {};
}

double sane(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

void make_sane(StatusFigures& figures) {
  for (double* us :
       {&figures.us, &figures.stall_us, &figures.replay_us, &figures.read_us, &figures.written_us})
    *us = sane(*us);
}

void make_sane(Status& status) {
  status.plan.points = std::min<std::uint32_t>(status.plan.points, kStatusPoints);
  status.plan.tensors = std::min<std::uint32_t>(status.plan.tensors, kStatusTensors);
  if (status.state > StatusState::over) status.state = StatusState::left;
  if (status.guide > StatusGuide::pager) status.guide = StatusGuide::none;
  make_sane(status.last);
  make_sane(status.total);
  for (double* us : {&status.program.began_us, &status.step_ended_us, &status.plan.us})
    *us = sane(*us);
  for (auto& step : status.history) {
    step.us = static_cast<float>(sane(step.us));
    step.stall_us = static_cast<float>(sane(step.stall_us));
  }
}

}  // namespace

StatusReader::StatusReader(const std::string& path)
    : path_(path),
      file_(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
  struct stat found {};
  if (!file_ || fstat(file_.get(), &found) != 0)
    throw Error(fmt::format("cannot read {}", path), errno);
  if (!S_ISREG(found.st_mode)) throw Error(fmt::format("{} is no file of a session", path));
  if (!is_trusted(found)) throw Error(fmt::format("{} belongs to another user", path));
}

StatusReader::Found StatusReader::read() {
  const StatusHeader expected;
  for (int i = 0; i < kTries; ++i) {
    StatusHeader before, after;
    Status status;
    if (!read_at(file_.get(), &before, sizeof before, 0) || before.magic != expected.magic)
      return Found::no_status;
    version_ = before.version;
    if (before.version != expected.version || before.bytes != expected.bytes)
      return Found::other_version;
    if (before.written == 0) return Found::unfinished;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!read_at(file_.get(), &status, sizeof status, sizeof before)) return Found::no_status;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!read_at(file_.get(), &after, sizeof after, 0)) return Found::no_status;
    if (before.written % 2 != 0 || after.written != before.written) continue;
    make_sane(status);
    status_ = status;
    return Found::status;
  }
  return Found::unfinished;
}

std::optional<pid_t> StatusReader::writer() const {
  struct flock held {};
  held.l_type = F_RDLCK;
  held.l_whence = SEEK_SET;
  if (fcntl(file_.get(), F_GETLK, &held) != 0 || held.l_type == F_UNLCK) return std::nullopt;
  if (held.l_pid > 0) return held.l_pid;
  pid_t process = 0;  // one of another namespace, which has no number here
  const auto name = fs::path(path_).filename().string();
  std::from_chars(name.data(), name.data() + name.size(), process);
  return process;
}

std::vector<StatusFile> running_sessions() {
  std::vector<StatusFile> found;
  for (const auto& folder : status_folders()) {
    if (!objection(folder).empty()) continue;
    std::error_code none;
    for (const auto& each : fs::directory_iterator(folder, none)) try {
        if (!each.path().native().ends_with(kStatusSuffix)) continue;
        const StatusReader reader(each.path());
        if (const auto process = reader.writer()) found.push_back({*process, each.path()});
      } catch (const Error&) {  // no session's, or gone by now
      }
  }
  std::ranges::sort(found, {}, &StatusFile::process);
  return found;
}

std::vector<std::string> folders_passed_over() {
  const auto folders = status_folders();
  if (folders.empty()) return {"SENTINEL_STATUS is off: no folder is looked at"};
  std::vector<std::string> reasons;
  for (const auto& folder : folders)
    if (auto reason = objection(folder); !reason.empty()) reasons.push_back(std::move(reason));
  return reasons;
}

}  // namespace sentinel
