// `sentinel jobs`: who has what of a broker's memory, and who waits.
#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "base/text.h"
#include "base/units.h"
#include "broker/wire/socket.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "sentinel/error.h"
#include "trace/json.h"

namespace sentinel::cli {
namespace {

using Json = nlohmann::json;

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
  text += fmt::format("\n{:>8}  {:<8} {:>10} {:>10} {:>10} {:>10}  {}\n", "process", "state",
                      "granted", "held", "least", "most", "job");
  for (const auto& job : jobs)
    text +=
        fmt::format("{:>8}  {:<8} {:>10} {:>10} {:>10} {:>10}  {}\n", job.at("process").get<int>(),
                    job.at("state").get<std::string>(), bytes_of(job, "granted_bytes"),
                    bytes_of(job, "held_bytes"), bytes_of(job, "least_bytes"),
                    bytes_of(job, "most_bytes"), printable(job.at("name").get<std::string>(), 60));
  for (const auto& job : jobs)
    if (job.contains("waits_for"))
      text += fmt::format("\n{} waits: {}", job.at("process").get<int>(),
                          printable(job.at("waits_for").get<std::string>()));
  return text + (text.ends_with("\n") ? "" : "\n");
}

int jobs(const Settings& s) {
  const auto text = listing(s.socket.empty() ? broker_path() : s.socket);
  if (s.json) return print(text);
  try {
    return print(as_text(Json::parse(text)));
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
