// Starts a broker beside a command: a process of its own session.
#include "sharing/start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "broker/wire/socket.h"
#include "cli/terminal.h"
#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr double kBeginsS = 5;  // in which a broker begins
constexpr int kPatienceMs = 5000;

// What a person's terminal or a pipe waits for is not held open by a broker that outlives us.
[[noreturn]] void become_broker(const std::string& total, const std::string& path) {
  setsid();
  if (const pid_t broker = fork(); broker != 0) _exit(broker < 0 ? 1 : 0);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, stream);
  close_range(STDERR_FILENO + 1, ~0u, 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execl("/proc/self/exe", "sentinel", "broker", "--fast", total.c_str(), "--socket", path.c_str(),
        "--idle", "10", nullptr);
  _exit(127);
}

// A broker's answer; nothing: it ends just now, or there is none.
Descriptor answering(const std::string& path) {
  auto socket = connect_to(path);
  if (!socket) return socket;
  Packet packet;
  if (send_message(socket.get(), {.kind = MessageKind::list}) == 0 &&
      await_packet(socket.get(), kPatienceMs) && receive_packet(socket.get(), packet) == 0)
    return socket;
  errno = ECONNREFUSED;
  return {};
}

}  // namespace

Descriptor ensure_broker(const SessionOptions& options) {
  const auto& [path, share] = std::pair(options.sharing.broker, options.sharing.bytes);
  if (share != 0) broker_folder(path);
  if (auto connection = answering(path)) {
    if (share != 0 && !options.quiet)
      say(fmt::format("a broker listens at {} already: --share changes nothing", path));
    return connection;
  }
  if (const int code = errno; code != ENOENT && code != ECONNREFUSED)
    throw Error(fmt::format("could not connect to the broker at {}", path), code);
  if (share == 0)
    throw Error(fmt::format(
        "no broker listens at {}. Start one: sentinel broker --fast BYTES; or give --share BYTES, "
        "what all jobs may take together",
        path));
  const auto total = std::to_string(share);
  const pid_t starter = fork();
  if (starter < 0) throw Error("could not start a broker", errno);
  if (starter == 0) become_broker(total, path);
  int status = 0;
  if (waitpid(starter, &status, 0) != starter || status != 0)
    throw Error("could not start a broker");
  for (const auto begin = Clock::now(); seconds_since(begin) < kBeginsS;
       std::this_thread::sleep_for(kLook))
    if (auto connection = answering(path)) return connection;
  throw Error(
      fmt::format("a broker was started and does not listen at {}; try: sentinel broker "
                  "--fast {} --socket {}",
                  path, total, path));
}

}  // namespace sentinel::cli
