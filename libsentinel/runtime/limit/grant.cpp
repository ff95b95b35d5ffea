// Connects, waits to be admitted, and obeys orders in a thread.
#include "runtime/limit/grant.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <memory>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "base/failure.h"
#include "base/quiet_thread.h"
#include "base/units.h"
#include "broker/wire/socket.h"
#include "engine/host/ranks.h"
#include "engine/io/slow_file.h"
#include "sentinel/error.h"
#include "trace/tensor_trace.h"

namespace sentinel {
namespace {

constexpr std::size_t kHeldBytes = 4096;
constexpr double kStartingS = 10;   // in which a broker that is being started has to listen
constexpr double kShrinkS = 5;      // less than the broker waits for an answer
constexpr double kGiveBackS = 0.1;  // then it looks whether it still wants less
constexpr int kGiveBackAgainMs = 5;
constexpr double kTellMs = 1000;  // a shorter wait is not worth a line
constexpr double kNever = 1e9;    // in seconds
constexpr double kAnswerS = 1;    // for a broker's first word, however short the wait
constexpr std::chrono::milliseconds kAgain{250};  // between two tries to connect
constexpr std::chrono::milliseconds kAgainAtMost{10'000};

std::uint64_t most_of(const SessionOptions& options) {
  return options.fast.bytes != 0 ? options.fast.bytes : ~0ull;
}

// Of the drive that is fullest: blocks are spread evenly.
std::uint64_t room_on_drives(const std::string& directories) {
  const auto all = split_directories(directories);
  std::uint64_t least = ~0ull;
  for (const auto& directory : all) {
    struct statvfs status {};
    if (statvfs(directory.c_str(), &status) == 0)
      least = std::min<std::uint64_t>(least, status.f_bavail * status.f_frsize);
  }
  return least == ~0ull ? least : least * all.size();
}

// Of several drives the first: jobs that have it in common are likely to have all.
std::uint64_t device_of(const std::string& directories) {
  struct stat found {};
  const auto all = split_directories(directories);
  return all.empty() || stat(all.front().c_str(), &found) != 0 ? 0 : found.st_dev;
}

// Of all signals, only those that end a program interrupt it.
int await_or_signal(pollfd& wait, int ms) {
  sigset_t others;
  sigfillset(&others);
  for (const int number : {SIGINT, SIGTERM}) sigdelset(&others, number);
  const timespec most{.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1'000'000L};
  return ppoll(&wait, 1, &most, &others);
}

}  // namespace

class Grant::Page {
 public:
  Page() : file_(memfd_create("sentinel-held", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    void* page = MAP_FAILED;
    if (file_ && ftruncate(file_.get(), kHeldBytes) == 0 &&
        fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
      page = mmap(nullptr, kHeldBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (page == MAP_FAILED) throw Error("could not share memory with the broker", errno);
    madvise(page, kHeldBytes, MADV_DONTFORK);
    bytes_ = new (page) std::atomic<std::uint64_t>(0);
  }
  ~Page() { munmap(bytes_, kHeldBytes); }

  void tell(std::uint64_t bytes) { bytes_->store(bytes, std::memory_order_release); }
  int file() const { return file_.get(); }

 private:
  Descriptor file_;
  std::atomic<std::uint64_t>* bytes_ = nullptr;
};

Grant::Grant(const SessionOptions& options, Engine& engine, std::uint64_t least, const Voice& voice,
             bool peaks)
    : options_(options),
      engine_(engine),
      voice_(voice),
      need_{.least = least,
            .most = std::max(least, options.sharing.helper ? 2 * least : most_of(options)),
            .peaks = peaks} {}

Grant::~Grant() {
  {
    const std::lock_guard guard(lock_);
    is_.over = is_.ends = true;
    if (socket_.is_ours()) shutdown(socket_.number(), SHUT_RDWR);
  }
  bell_.ring();
  if (thread_.joinable()) thread_.join();
  socket_.close();
}

// ---------------------------------------------------------------- admission

Message Grant::hello(std::uint64_t holds) const {
  Message message{.kind = MessageKind::hello,
                  .bytes = holds,
                  .least = need_.least,
                  .most = need_.most,
                  .usual = need_.usual,
                  .begun = process_begun(getpid()),
                  .training = options_.sharing.training,
                  .priority = options_.sharing.priority,
                  .ranks = options_.sharing.ranks};
  put(message.name, options_.command);
  return message;
}

int Grant::connect() {
  socket_.close();
  auto made = connect_to(options_.sharing.broker);
  if (!made) return errno;
  socket_ = OurFile(out_of_reach(made.release()));
  return 0;
}

// Other threads come and wait behind the first one.
void Grant::admit() {
  const std::lock_guard one(admission_);
  if (is_.admitted) return;
  join();
  thread_ = quiet_thread([this] { attend(); });
  is_.admitted = true;
}

void Grant::join() {
  page_ = std::make_unique<Page>();
  std::string waits_for = "no broker answers";
  const auto begin = Clock::now();
  auto lost = begin;  // when nobody has listened since
  const double most_s =
      options_.sharing.wait_s == ~0u ? kNever : static_cast<double>(options_.sharing.wait_s);
  double until_s = std::max(most_s, kAnswerS);  // once it has answered: most_s
  bool told = false;
  for (int code = -1; granted_.base == 0 && !is_.over;) {
    const double waited_s = seconds_since(begin);
    const bool nobody = code != 0;
    if (waited_s >= until_s || (nobody && seconds_since(lost) > kStartingS))
      throw Error(fmt::format("no memory was granted by the broker at {} within {:.0f} s: {}",
                              options_.sharing.broker, waited_s, waits_for));
    if (nobody) {
      const std::lock_guard guard(lock_);
      code = connect();
      if (code == 0) code = send_message(socket_.number(), hello(0), page_->file());
    }
    if (code != 0) {
      std::this_thread::sleep_for(kAgain);
      continue;
    }
    pollfd wait{.fd = socket_.number(), .events = POLLIN, .revents = 0};
    const double left_ms = (until_s - waited_s) * 1e3 + 1;
    const int came = await_or_signal(wait, static_cast<int>(std::clamp(left_ms, 1.0, kTellMs)));
    if (came < 0)
      throw Error(errno == EINTR ? "interrupted while waiting for memory from the broker"
                                 : "could not wait for the broker",
                  errno);
    if (came == 0) {
      if (!std::exchange(told, true))
        voice_.say("waiting for memory from the broker: " + waits_for);
      continue;
    }
    Packet packet;
    code = receive_packet(socket_.number(), packet);
    if (code != 0) {  // who takes connections and closes them is no broker
      std::this_thread::sleep_for(kAgain);
      continue;
    }
    lost = Clock::now();
    until_s = most_s;
    const auto message = parse_message(packet.bytes);
    if (!message) throw Error("the broker is of another version of Sentinel");
    if (message->kind == MessageKind::refused)
      throw Error(fmt::format("the broker at {} refuses: {}", options_.sharing.broker,
                              text_of(message->text)));
    if (message->kind == MessageKind::waiting) {
      waits_for = text_of(message->text);
      told = false;
    }
    if (message->kind == MessageKind::grant) obey(*message);
  }
  take();
  if (!is_.over && rank_of_process().rank.value_or(0) == 0)
    voice_.say(
        fmt::format("the broker at {} grants {}", options_.sharing.broker, print_bytes(bytes())));
}

// ---------------------------------------------------------------- orders

bool Grant::take() {
  const std::unique_lock guard(lock_, std::try_to_lock);
  const std::pair now(base(), bytes());
  if (!guard || is_.over || taken_ == now) return false;
  taken_ = now;
  return limit(now.first);
}

// What does not leave in time stays: the next border tries again.
bool Grant::limit(std::uint64_t bytes) {
  if (bytes >= held_) {
    if (bytes != held_) engine_.set_budget((held_ = bytes) + lease_.bytes);
    return true;
  }
  if (engine_.shrink_budget(bytes + lease_.bytes, kShrinkS)) {
    held_ = bytes;
    return true;
  }
  engine_.set_budget(held_ + lease_.bytes);
  taken_ = {};
  return false;
}

void Grant::hold(std::uint64_t bytes) {
  const std::lock_guard guard(lock_);
  if (is_.over) return;
  limit(std::min(bytes, base()));
}

// Who cannot shrink so far keeps what the engine holds by then, and says so. With each order the
// lease ends.
void Grant::obey(const Message& order) {
  auto holds = order.bytes;
  const std::lock_guard guard(lock_);
  if (is_.over) return;
  if (order.bytes < need_.least)
    throw Error(fmt::format("the broker orders {}, less than the {} that this training works with",
                            print_bytes(order.bytes), print_bytes(need_.least)));
  sample_ms_ = std::clamp(order.sample_ms, 1u, 60'000u);
  const auto has = held_ + std::exchange(lease_.bytes, 0);
  lease_.asked = 0;
  held_ = std::min(has, order.bytes);
  if (order.bytes < has) try {
      const auto held = engine_.counters().held_bytes;
      if (room_on_drives(options_.tiers.slow_directory) < held - std::min(held, order.bytes))
        throw Error(fmt::format("{} has no room for what would leave memory",
                                options_.tiers.slow_directory));
      if (!engine_.shrink_budget(order.bytes, kShrinkS))
        throw Error(fmt::format("{} did not leave memory within {:.0f} s",
                                print_bytes(has - order.bytes), kShrinkS));
    } catch (const std::exception& error) {
      voice_.say("the grant cannot shrink: " + in_words(error));
      const auto granule = engine_.granule(), held = engine_.counters().held_bytes;
      holds = held_ = std::clamp((held + granule - 1) / granule * granule, order.bytes, has);
      engine_.set_budget(held_);
    }
  granted_.base = std::max(order.bytes, holds);
  granted_.most = std::max(order.most, granted_.base.load());
  page_->tell(engine_.counters().held_bytes);
  const int code = send_message(
      socket_.number(), {.kind = MessageKind::acknowledge, .number = order.number, .bytes = holds});
  if (code != 0) throw Error("an answer does not reach it", code);
}

void Grant::ask(std::uint64_t bytes) noexcept {
  wants_ = bytes;
  bell_.ring();
}

// The engine counts the most that is held anew with each budget.
bool Grant::vary(std::uint64_t bytes, double most_s) {
  most_held_ = std::max(most_held_.load(), engine_.counters().peak_bytes);
  return engine_.shrink_budget(bytes, most_s);
}

// What is given back has left memory before the broker hears of it. What has not in a while is
// tried again: by then more may be wanted.
bool Grant::follow_wants() {
  const std::lock_guard guard(lock_);
  const auto base = this->base(), most = bytes();
  const auto wants = std::min(wants_.load(), most - std::min(most, base));
  if (is_.over || wants == lease_.asked) return true;
  if (wants < lease_.bytes) {
    if (!vary(held_ + wants, kGiveBackS)) {
      vary(held_ + lease_.bytes, 0);
      return false;
    }
    lease_.bytes = wants;
    page_->tell(engine_.counters().held_bytes);
  }
  lease_.asked = wants;
  const int code = send_message(socket_.number(), {.kind = MessageKind::lease,
                                                   .number = ++lease_.number,
                                                   .bytes = lease_.bytes,
                                                   .most = wants});
  if (code != 0) throw Error("a lease is not asked for", code);
  return true;
}

// Of what it has asked for before it wants no answer any more.
void Grant::lent(const Message& message) {
  const std::lock_guard guard(lock_);
  if (is_.over || message.number != lease_.number) return;
  lease_.bytes = std::clamp(message.bytes, lease_.bytes, std::max(lease_.bytes, lease_.asked));
  vary(held_ + lease_.bytes, 0);
}

// Without a connection there is none. What does not leave memory is counted with the base.
void Grant::end_lease() {
  lease_.asked = 0;
  const auto bytes = std::exchange(lease_.bytes, 0);
  if (bytes == 0 || vary(held_, kShrinkS)) return;
  vary(held_ += bytes, 0);
  granted_.base = std::max(granted_.base.load(), held_);
  granted_.most = std::max(granted_.most.load(), held_);
}

bool Grant::attend_once() {
  if (!socket_.is_ours()) return false;  // the program has closed it
  const bool follows = follow_wants();
  // Others have the lock before it tries again.
  if (!bell_.await(socket_.number(), follows ? static_cast<int>(sample_ms_) : kGiveBackAgainMs)) {
    page_->tell(engine_.counters().held_bytes);
    return true;
  }
  Packet packet;
  const int code = receive_packet(socket_.number(), packet);
  if (code == EAGAIN || code == EINTR) return true;
  const auto message = code == 0 ? parse_message(packet.bytes) : std::nullopt;
  if (!message) return false;
  page_->tell(engine_.counters().held_bytes);
  if (message->kind == MessageKind::grant) obey(*message);
  if (message->kind == MessageKind::lease) lent(*message);
  if (message->kind == MessageKind::drive)
    granted_.drive_thousandths = std::clamp(message->drive_thousandths, 1u, 1000u);
  if (message->kind != MessageKind::refused) return true;
  const std::lock_guard guard(lock_);
  trace_.clear();  // it may be what is refused
  throw Error("it refuses: " + text_of(message->text));
}

// Whatever fails is tried again later: this training goes on with what it has.
void Grant::attend() noexcept {
  bool connected = true, told = false;
  auto pause = kAgain;  // longer where it does not help
  while (!is_.over) try {
      if (connected && attend_once()) {
        pause = kAgain;
        continue;
      }
      connected = false;
      rest(pause);
      const std::lock_guard guard(lock_);
      if (is_.over) continue;
      end_lease();
      if (connect() != 0) continue;
      if (send_message(socket_.number(), hello(granted_.base), page_->file()) != 0) continue;
      connected = true;
      say_needs();
    } catch (const std::exception& error) {
      connected = false;  // what was not acknowledged is asked again
      if (!std::exchange(told, true))
        voice_.say("the broker is not obeyed, and asked again: " + in_words(error));
      pause = std::min(2 * pause, kAgainAtMost);
    }
  for (pause = kAgain; !is_.ends && !farewell(); pause = std::min(2 * pause, kAgainAtMost))
    rest(pause);
}

// In parts: the end does not wait for it.
void Grant::rest(std::chrono::milliseconds pause) const {
  for (auto left = pause; left.count() > 0 && !is_.ends; left -= kAgain)
    std::this_thread::sleep_for(std::min(left, kAgain));
}

void Grant::profiled(const Profile& profile, std::uint64_t most, std::uint64_t usual) {
  std::ostringstream trace;
  write_tensor_trace(profile, trace);
  const std::lock_guard guard(lock_);
  trace_ = std::move(trace).str();
  need_.most = std::max(need_.least, std::min(most, most_of(options_)));
  need_.usual = need_.peaks ? std::clamp(usual, need_.least, need_.most) : 0;
  if (options_.fast.percent > 0) cap_ = need_.most;
  say_needs();
}

// With the session's lock held: a step does not wait for a budget that comes into force. The next
// step that is measured says it again.
void Grant::drifted(const Profile& profile) {
  std::ostringstream trace;
  write_tensor_trace(profile, trace);
  const std::unique_lock guard(lock_, std::try_to_lock);
  if (!guard || trace_.empty()) return;  // or the broker did not want it
  trace_ = std::move(trace).str();
  say_needs();
}

// With the lock held. What does not arrive is said when the connection is there again.
void Grant::say_needs() {
  if (trace_.empty() || !socket_.is_ours()) return;
  Message message{.kind = MessageKind::needs,
                  .number = device_of(options_.tiers.slow_directory),
                  .least = need_.least,
                  .most = need_.most,
                  .usual = need_.usual,
                  .priority = options_.sharing.priority};
  put(message.policy, options_.policy);
  put(message.machine, options_.machine.empty() ? local_machine(options_) : options_.machine);
  send_message(socket_.number(), message, sealed_file(trace_).get());
}

void Grant::leave() {
  {
    const std::lock_guard guard(lock_);  // from here on it sets no budget
    is_.over = true;
  }
  bell_.ring();
}

// Its own connection may be lost; any of this process does.
bool Grant::farewell() {
  const auto say = [this] {
    return send_message(socket_.number(),
                        {.kind = MessageKind::bye, .begun = process_begun(getpid())});
  };
  {
    const std::lock_guard guard(lock_);
    if (!socket_.is_ours() || say() != 0)
      if (connect() != 0 || say() != 0) return false;
  }
  for (Packet packet; !is_.ends && await_packet(socket_.number(), static_cast<int>(kTellMs));) {
    const int code = receive_packet(socket_.number(), packet);
    if (code == EAGAIN || code == EINTR) continue;
    const auto message = code == 0 ? parse_message(packet.bytes) : std::nullopt;
    if (message && message->kind == MessageKind::bye) return true;
    if (!message) break;
  }
  const std::lock_guard guard(lock_);
  socket_.close();
  return false;
}

}  // namespace sentinel
