#include "plan/plan_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

class File {  // closed and, unless kept, removed
 public:
  explicit File(std::string path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) throw Error(fmt::format("cannot create {}", path_), errno);
    ::fchmod(fd_, 0600);  // the file may have existed with other rights
  }
  ~File() {
    ::close(fd_);
    if (!kept_) ::unlink(path_.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw Error(fmt::format("cannot write {}", path_), errno);
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  void keep_as(const std::string& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0)
      throw Error(fmt::format("cannot rename {} to {}", path_, path), errno);
    kept_ = true;
  }

 private:
  std::string path_;
  int fd_ = -1;
  bool kept_ = false;
};

}  // namespace

void write_plan(const std::string& path, const Plan& plan) {
  File file(fmt::format("{}.{}.tmp", path, ::getpid()));
  file.write(plan_to_json(plan));
  file.keep_as(path);
}

Plan read_plan(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(fmt::format("cannot read plan {}", path), errno);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw Error(fmt::format("cannot read plan {}", path), EIO);
  return plan_from_json(text, path);
}

void check_matches(const Plan& plan, const Profile& profile) {
  if (plan.profile_signature == profile.meta.signature) return;
  throw Error(fmt::format(
      "the plan was made for {} with step signature {:016x}, the profile is of {} with {:016x}: "
      "make a new one with `sentinel plan`",
      plan.model.empty() ? "a model" : plan.model, plan.profile_signature,
      profile.meta.model.empty() ? "a model" : profile.meta.model, profile.meta.signature));
}

}  // namespace sentinel::plan
