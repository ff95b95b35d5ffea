// `sentinel jobs`: who has what of a broker's memory, and who waits.
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/text.h"
#include "base/units.h"
#include "broker/wire/socket.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "runtime/status/status_reader.h"
#include "sentinel/error.h"
#include "trace/json.h"

namespace sentinel::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPatienceMs = 5000;
constexpr std::size_t kLongest = 64u << 20;

struct Settings {
  std::string socket;
  bool json = false;
};

std::string listing(const std::string& path) {
  const auto socket = connect_to(path);
  if (!socket && (errno == ENOENT || errno == ECONNREFUSED))
    throw Error(
        fmt::format("no broker listens at {}; `sentinel broker --fast BYTES` is one", path));
  const int sent = socket ? send_message(socket.get(), {.kind = MessageKind::list}) : errno;
  if (sent != 0) throw Error(fmt::format("cannot ask the broker at {}", path), sent);
  Packet packet;
  if (!await_packet(socket.get(), kPatienceMs))
    throw Error(fmt::format("the broker at {} does not answer", path));
  const int code = receive_packet(socket.get(), packet);
  const auto message = code == 0 ? parse_message(packet.bytes) : std::nullopt;
  const auto text = read_sealed(packet.file, kLongest);
  if (!message || message->kind != MessageKind::listing || !text)
    throw Error(fmt::format("the broker at {} gave no list of its jobs", path), code);
  return *text;
}

// What its session publishes: the traffic of its last step.
void add_moves(Json& jobs) {
  std::map<pid_t, std::string> files;
  for (auto& file : running_sessions()) files.emplace(file.process, std::move(file.path));
  for (auto& job : jobs) try {
      const auto file = files.find(job.at("process").get<pid_t>());
      if (file == files.end()) continue;
      StatusReader reader(file->second);
      if (reader.read() != StatusReader::Found::status) continue;
      const auto& last = reader.status().last;
      if (last.us <= 0) continue;
      job["step_ms"] = last.us / 1e3;
      job["in_bytes_per_s"] = std::llround(static_cast<double>(last.in_bytes) / last.us * 1e6);
      job["out_bytes_per_s"] = std::llround(static_cast<double>(last.out_bytes) / last.us * 1e6);
    } catch (const Error&) {  // it has ended since
    }
}

std::string rate_of(const Json& job, const char* key) {
  return job.contains(key) ? print_bytes(job.at(key).get<std::uint64_t>()) + "/s" : "-";
}

std::string bytes_of(const Json& json, const char* key) {
  return json.contains(key) ? print_bytes(json.at(key).get<std::uint64_t>()) : "-";
}

std::string as_text(const Json& json) {
  const auto& jobs = json.at("jobs");
  auto text = fmt::format("{} of {} are granted, {} held now, {} at most\n",
                          bytes_of(json, "counted_bytes"), bytes_of(json, "total_bytes"),
                          bytes_of(json, "held_bytes"), bytes_of(json, "most_held_bytes"));
  if (json.at("waits_for_absent_jobs").get<bool>())
    text += "The broker has begun anew: nothing is granted until its absent jobs are back.\n";
  if (jobs.empty()) return text + "No job is here.\n";
  constexpr const char* kRow = "{:>8}  {:<8} {:>10} {:>10} {:>10} {:>10} {:>12} {:>12}  {}\n";
  text += '\n' + fmt::format(kRow, "process", "state", "granted", "held", "least", "most",
                             "comes in", "goes out", "job");
  for (const auto& job : jobs)
    text += fmt::format(kRow, job.at("process").get<int>(), job.at("state").get<std::string>(),
                        bytes_of(job, "granted_bytes"), bytes_of(job, "held_bytes"),
                        bytes_of(job, "least_bytes"), bytes_of(job, "most_bytes"),
                        rate_of(job, "in_bytes_per_s"), rate_of(job, "out_bytes_per_s"),
                        printable(job.at("name").get<std::string>(), 60));
  for (const auto& job : jobs)
    if (job.contains("waits_for"))
      text += fmt::format("\n{} waits: {}", job.at("process").get<int>(),
                          printable(job.at("waits_for").get<std::string>()));
  return text + (text.ends_with("\n") ? "" : "\n");
}

int jobs(const Settings& s) {
  const auto text = listing(s.socket.empty() ? broker_path() : s.socket);
  try {
    auto json = Json::parse(text);
    add_moves(json.at("jobs"));
    return print(s.json ? json_text(json, 1) + "\n" : as_text(json));
  } catch (const Json::exception& error) {
    throw Error("the broker's list cannot be read: " + json_fault(error));
  }
}

}  // namespace

Action declare_jobs(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      {"--socket", "PATH", "the broker's; below $XDG_RUNTIME_DIR if absent", &s->socket},
      {"--json", "", "the same, for programs", &s->json},
  };
  return [s] { return jobs(*s); };
}

}  // namespace sentinel::cli
