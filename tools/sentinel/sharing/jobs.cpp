// `sentinel jobs`: asks a broker for the list of its jobs.
#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <string>

#include "broker/wire/socket.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "sentinel/error.h"
#include "sharing/jobs_list.h"

namespace sentinel::cli {
namespace {

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

int jobs(const Settings& s) {
  return print(print_jobs(listing(s.socket.empty() ? broker_path() : s.socket), s.json));
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
