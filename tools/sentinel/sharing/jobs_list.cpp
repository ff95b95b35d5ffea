// Reads a broker's list, and prints it.
#include "sharing/jobs_list.h"

#include <fmt/format.h>

#include <limits>
#include <map>

#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "runtime/status/status_reader.h"
#include "sentinel/error.h"
#include "trace/json.h"

namespace sentinel::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMostPid = std::numeric_limits<pid_t>::max();

std::uint64_t rate(std::uint64_t bytes, double us) {
  return saturated(static_cast<double>(bytes) / us * 1e6);
}

// What its session publishes: the traffic of its last step.
void add_moves(Json& jobs) {
  std::map<pid_t, std::string> files;
  for (auto& file : running_sessions()) files.emplace(file.process, std::move(file.path));
  for (auto& job : jobs) try {
      const auto file = files.find(static_cast<pid_t>(whole_number(job, "process", kMostPid)));
      if (file == files.end()) continue;
      StatusReader reader(file->second);
      if (reader.read() != StatusReader::Found::status) continue;
      const auto& last = reader.status().last;
      if (last.us <= 0) continue;
      job["step_ms"] = last.us / 1e3;
      job["in_bytes_per_s"] = rate(last.in_bytes, last.us);
      job["out_bytes_per_s"] = rate(last.out_bytes, last.us);
    } catch (const Error&) {  // it has ended since
    }
}

std::string rate_of(const Json& job, const char* key) {
  return job.contains(key) ? print_bytes(whole_number(job, key)) + "/s" : "-";
}

std::string part_of_drive(const Json& job) {
  return job.contains("drive_part") ? fmt::format("{:.0f} %", 1e2 * job["drive_part"].get<double>())
                                    : "-";
}

std::string bytes_of(const Json& json, const char* key) {
  return json.contains(key) ? print_bytes(whole_number(json, key)) : "-";
}

std::string as_text(const Json& json) {
  const auto& jobs = json.at("jobs");
  auto text =
      fmt::format("{} of {} are granted, {} of that lent for peaks; {} held now, {} at most\n",
                  bytes_of(json, "counted_bytes"), bytes_of(json, "total_bytes"),
                  bytes_of(json, "leased_bytes"), bytes_of(json, "held_bytes"),
                  bytes_of(json, "most_held_bytes"));
  if (json.at("waits_for_absent_jobs").get<bool>())
    text += "The broker has begun anew: nothing is granted until its absent jobs are back.\n";
  if (jobs.empty()) return text + "No job is here.\n";
  constexpr const char* kRow =
      "{:>8}  {:<8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>6} {:>12} {:>12}  {}\n";
  text += '\n' + fmt::format(kRow, "process", "state", "granted", "lent", "held", "least", "most",
                             "drive", "comes in", "goes out", "job");
  for (const auto& job : jobs)
    text += fmt::format(
        kRow, whole_number(job, "process", kMostPid),
        printable(job.at("state").get<std::string>(), 8), bytes_of(job, "granted_bytes"),
        bytes_of(job, "leased_bytes"), bytes_of(job, "held_bytes"), bytes_of(job, "least_bytes"),
        bytes_of(job, "most_bytes"), part_of_drive(job), rate_of(job, "in_bytes_per_s"),
        rate_of(job, "out_bytes_per_s"), printable(job.at("name").get<std::string>(), 60));
  for (const auto& job : jobs)
    if (job.contains("waits_for"))
      text += fmt::format("\n{} waits: {}", whole_number(job, "process", kMostPid),
                          printable(job.at("waits_for").get<std::string>()));
  return text + (text.ends_with("\n") ? "" : "\n");
}

}  // namespace

std::string print_jobs(const std::string& listing, bool as_json) {
  constexpr const char* kAttempt = "the broker's list cannot be read";
  try {
    require_shallow_json(listing);
    auto json = Json::parse(listing);
    add_moves(json.at("jobs"));
    return as_json ? json_text(json, 1) + "\n" : as_text(json);
  } catch (const Json::exception& error) {
    throw Error(fmt::format("{}: {}", kAttempt, json_fault(error)));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", kAttempt, error.what()));
  }
}

}  // namespace sentinel::cli
