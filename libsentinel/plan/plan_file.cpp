#include "plan/plan_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "sentinel/error.h"

namespace sentinel {

using nlohmann::json;

template <class Tag>
void to_json(json& j, const Id<Tag>& id) {
  j = id.value;
}

template <class Tag>
void from_json(const json& j, Id<Tag>& id) {
  id.value = j.get<std::uint32_t>();
}

NLOHMANN_JSON_SERIALIZE_ENUM(Pool, {{Pool::short_lived, "short-lived"},
                                    {Pool::long_lived, "long-lived"},
                                    {Pool::persistent, "persistent"},
                                    {Pool::resident, "resident"},
                                    {Pool::mixed, "mixed"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Direction, {{Direction::promote, "promote"},
                                         {Direction::demote, "demote"},
                                         {Direction::discard, "discard"},
                                         {Direction::copy, "copy"},
                                         {Direction::release, "release"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Placement, tensor, group, offset)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Group, pool, offset, bytes, first_layer, last_layer, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Move, tensor, direction, trigger, deadline, tier, delay_us,
                                   reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recompute, op, before, keep)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(InPlace, tensor, op)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Birth, tensor, tier)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(IntervalPoint, layers, exposed_us, reserved_bytes, fits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Plan, version, policy, machine, model, profile_path,
                                   profile_signature, fast_bytes, granule_bytes, part_bytes,
                                   region_bytes, reserved_bytes, peak_fast_bytes, interval_layers,
                                   placements, groups, moves, recomputations, streamed_ops,
                                   in_place, births, curve, frame_pool_bytes, smallest_budget,
                                   smallest_unstreamed_budget, paper_bound, effort,
                                   predicted_step_us)

namespace plan {
namespace {

constexpr std::string_view kFormat = "sentinel-plan";
constexpr std::uint32_t kVersion = 3;

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

std::string plan_to_json(const Plan& plan) {
  json j = plan;
  j["format"] = kFormat;
  return j.dump(1) + "\n";
}

Plan plan_from_json(const std::string& text, const std::string& where) {
  try {
    const json j = json::parse(text);
    if (!j.is_object() || j.value("format", "") != kFormat)
      throw Error(fmt::format("{} is not a plan; `sentinel plan` makes one", where));
    if (const auto version = j.value("version", std::uint32_t{0}); version != kVersion)
      throw Error(
          fmt::format("{} is a plan of version {}, this program reads version {}; make it "
                      "again with `sentinel plan`",
                      where, version, kVersion));
    return j.get<Plan>();
  } catch (const json::exception& e) {
    throw Error(fmt::format("{} is not a readable plan: {}", where, e.what()));
  }
}

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

}  // namespace plan
}  // namespace sentinel
