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

#include "broker/wire/socket.h"
#include "cli/terminal.h"
#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr int kLooks = 250;  // 5 s, in which a broker begins

// What a person's terminal or a pipe waits for is not held open by a broker that outlives us.
[[noreturn]] void become_broker(const std::string& total, const std::string& path) {
  setsid();
  if (fork() != 0) _exit(0);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, stream);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execl("/proc/self/exe", "sentinel", "broker", "--fast", total.c_str(), "--socket", path.c_str(),
        "--idle", "10", nullptr);
  _exit(127);
}

}  // namespace

Descriptor ensure_broker(const SessionOptions& options) {
  const auto& [path, share] = std::pair(options.sharing.broker, options.sharing.bytes);
  if (auto connection = connect_to(path)) {
    if (share != 0 && !options.quiet)
      say(fmt::format("a broker listens at {} already: --share changes nothing", path));
    return connection;
  }
  if (share == 0)
    throw Error(fmt::format(
        "no broker listens at {}. Start one: sentinel broker --fast BYTES; or give --share BYTES, "
        "what all jobs may take together",
        path));
  broker_folder(path);
  const auto total = std::to_string(share);
  const pid_t starter = fork();
  if (starter < 0) throw Error("could not start a broker", errno);
  if (starter == 0) become_broker(total, path);
  waitpid(starter, nullptr, 0);
  for (int look = 0; look < kLooks; ++look, std::this_thread::sleep_for(kLook))
    if (auto connection = connect_to(path)) return connection;
  throw Error(
      fmt::format("a broker was started and does not listen at {}; try: sentinel broker "
                  "--fast {} --socket {}",
                  path, total, path));
}

}  // namespace sentinel::cli
