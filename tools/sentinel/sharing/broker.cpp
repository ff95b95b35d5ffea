// `sentinel broker`: one amount of fast memory for several trainings, in the foreground.
#include "broker/server/broker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/units.h"
#include "broker/wire/socket.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

struct Settings {
  std::string fast, socket;
  std::uint64_t sample_ms = 1000;
  std::string idle, metrics;
};

bool is_listening(int descriptor, int option, int wanted) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(descriptor, SOL_SOCKET, option, &value, &size) == 0 && value == wanted;
}

// A socket that systemd listens at, and starts us for: sd_listen_fds(3).
Descriptor activated() {
  constexpr int kFirst = 3;
  const char* process = std::getenv("LISTEN_PID");
  const char* count = std::getenv("LISTEN_FDS");
  if (process == nullptr || count == nullptr || std::to_string(getpid()) != process) return {};
  if (std::string(count) != "1" || !is_listening(kFirst, SO_TYPE, SOCK_SEQPACKET) ||
      !is_listening(kFirst, SO_ACCEPTCONN, 1))
    throw Error("systemd gave something else than one socket of packets (ListenSequentialPacket=)");
  fcntl(kFirst, F_SETFD, FD_CLOEXEC);
  return Descriptor(kFirst);
}

int broker(const Settings& s) {
  const auto total = parse_bytes(s.fast);
  const auto path = s.socket.empty() ? broker_path() : s.socket;
  if (s.sample_ms == 0) throw UsageError("--sample is 1 at least");
  BrokerOptions options{.total = total,
                        .path = path,
                        .listening = activated(),
                        .sample_ms = static_cast<std::uint32_t>(s.sample_ms),
                        .metrics = s.metrics,
                        .say = [](const std::string& text) { say(text); }};
  if (!s.idle.empty()) options.idle_s = static_cast<std::uint32_t>(std::stoul(s.idle));
  Broker broker(std::move(options));
  say(fmt::format("{} for all jobs, at {}", print_bytes(total), path));
  broker.run();
  return kDone;
}

}  // namespace

Action declare_broker(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      {"--fast", "BYTES", "fast memory for all jobs together", &s->fast, true},
      {"--socket", "PATH", "where jobs connect; below $XDG_RUNTIME_DIR if absent", &s->socket},
      {"--sample", "MS", "time between two looks at what jobs hold", &s->sample_ms},
      {"--idle", "SECONDS", "end once there was no job for so long", &s->idle},
      written({"--metrics", "FILE", "who has how much, for Prometheus, each second", &s->metrics}),
  };
  return [s] {
    if (s->idle.find_first_not_of("0123456789") != s->idle.npos || s->idle.size() > 8)
      throw UsageError(fmt::format("--idle {}: not a whole number of seconds", s->idle));
    return broker(*s);
  };
}

}  // namespace sentinel::cli
