// JSON, with the machine's boot beside the processes' numbers.
#include "broker/server/ledger_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "base/descriptor.h"
#include "base/files.h"
#include "base/input.h"
#include "base/output.h"
#include "sentinel/error.h"
#include "trace/json.h"

namespace sentinel {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "sentinel-ledger";
constexpr InputKind kKind{.plural = "ledgers", .bytes = 16 << 20, .advice = "move it away"};

std::string boot() { return first_line("/proc/sys/kernel/random/boot_id"); }

// Of a file of the user's own.
std::string content_of(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat found {};
  if (!file && errno == ENOENT) return {};
  const auto attempt = fmt::format("cannot read the broker's ledger {}", path);
  if (!file || fstat(file.get(), &found) != 0) throw Error(attempt, errno);
  if (!S_ISREG(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 022) != 0)
    throw Error(attempt + ": it is no file that the user alone may write");
  return read_rest(file, attempt, kKind);
}

Holder holder_of(const Json& job) {
  constexpr auto kMostPid = std::numeric_limits<pid_t>::max();
  Holder holder{.process = static_cast<pid_t>(whole_number(job, "process", kMostPid)),
                .begun = whole_number(job, "begun"),
                .name = printable(job.at("name").get<std::string>()),
                .need = {.least = whole_number(job, "least"),
                         .most = whole_number(job, "most"),
                         .priority = job.at("priority").get<double>()},
                .counted = whole_number(job, "counted")};
  if (holder.counted > Ledger::kMost || holder.need.least > Ledger::kMost)
    throw Error("a job has more bytes than any machine");
  if (holder.process <= 0 || !(holder.need.priority > 0) || holder.need.most < holder.need.least)
    throw Error("a job's figures contradict each other");
  return holder;
}

}  // namespace

void write_ledger(const std::string& path, const std::vector<Holder>& holders) {
  Json json{{"format", kFormat}, {"version", 1}, {"boot", boot()}, {"jobs", Json::array()}};
  for (const auto& holder : holders)
    json["jobs"].push_back({{"process", holder.process},
                            {"begun", holder.begun},
                            {"name", holder.name},
                            {"least", holder.need.least},
                            {"most", holder.need.most},
                            {"priority", holder.need.priority},
                            {"counted", holder.counted}});
  write_file(path, json_text(json, 1) + "\n",
             fmt::format("could not write the broker's ledger {}", path), Readers::owner);
}

std::vector<Holder> read_ledger(const std::string& path) {
  const auto text = content_of(path);
  std::vector<Holder> holders;
  if (text.empty()) return holders;
  const auto attempt = fmt::format("{} is no ledger of a broker", path);
  try {
    require_shallow_json(text);
    const auto json = Json::parse(text);
    if (json.at("format") != kFormat || json.at("version") != 1) throw Error(attempt);
    if (json.at("boot") != boot()) return holders;
    for (const auto& job : json.at("jobs")) holders.push_back(holder_of(job));
  } catch (const Json::exception& error) {
    throw Error(fmt::format("{}: {}", attempt, json_fault(error)));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", attempt, error.what()));
  }
  return holders;
}

}  // namespace sentinel
