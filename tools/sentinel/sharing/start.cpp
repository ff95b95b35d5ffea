// Starts brokers beside a command: a process of its own session, or a child that ends with us.
#include "sharing/start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "base/units.h"
#include "broker/server/broker.h"
#include "broker/wire/socket.h"
#include "cli/terminal.h"
#include "sentinel/error.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

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

bool listens(const std::string& path) { return static_cast<bool>(connect_to(path)); }

}  // namespace

void ensure_broker(const SessionOptions& options) {
  const auto& [path, share] = std::pair(options.sharing.broker, options.sharing.bytes);
  if (listens(path)) {
    if (share != 0 && !options.quiet)
      say(fmt::format("a broker listens at {} already: --share changes nothing", path));
    return;
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
    if (listens(path)) return;
  throw Error(
      fmt::format("a broker was started and does not listen at {}; try: sentinel broker "
                  "--fast {} --socket {}",
                  path, total, path));
}

RanksBroker::RanksBroker(std::uint64_t total) {
  auto pattern = (fs::temp_directory_path() / "sentinel-ranks-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr)
    throw Error(fmt::format("could not make a folder for the ranks' broker, {}", pattern), errno);
  folder_ = pattern;
  const auto path = folder_ + "/broker.sock";
  BrokerOptions options{.total = total,
                        .path = path,
                        .listening = listen_at(path),
                        .remembers = false,
                        .say = [](const std::string& text) { say(text); }};
  const pid_t us = getpid();
  process_ = fork();
  if (process_ < 0) throw Error("could not start the ranks' broker", errno);
  if (process_ != 0) {
    setenv("SENTINEL_RANKS", path.c_str(), 1);
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != us) _exit(0);
  sigset_t all;  // what a terminal sends to our group is the command's
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  try {
    Broker(std::move(options)).run();
  } catch (const std::exception& error) {
    say(in_words(error));
  }
  _exit(0);
}

RanksBroker::~RanksBroker() {
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  std::error_code none;
  fs::remove_all(folder_, none);
}

std::unique_ptr<RanksBroker> divide_among_ranks(const SessionOptions& options) {
  const bool drives = !options.gpu.device && !options.tiers.nodes;
  if (options.fast.bytes == 0 || !options.sharing.broker.empty() || !drives) return nullptr;
  return std::make_unique<RanksBroker>(options.fast.bytes);
}

}  // namespace sentinel::cli
