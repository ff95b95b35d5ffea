// What comes from jobs becomes the ledger's, and its orders go to them once they are in its file.
#include "broker/server/broker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <exception>
#include <utility>

#include "base/failure.h"
#include "base/text.h"
#include "base/units.h"
#include "broker/server/ledger_file.h"
#include "broker/wire/socket.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::size_t kMostConnections = 256;
constexpr std::size_t kLongestProfile = 256u << 20;
constexpr std::uint32_t kMostRanks = 1024;
constexpr std::uint64_t kCheckMs = 1000;  // that the socket's file is there
constexpr std::uint64_t kFirstWordMs = 10'000;

std::string ledger_path(const std::string& socket) { return socket + ".ledger"; }

Need told_need(const Message& message) {
  return {.least = message.least,
          .most = std::max(message.least, message.most),
          .usual = message.usual,
          .training = message.training,
          .ranks = message.training == 0 ? 1 : std::clamp(message.ranks, 1u, kMostRanks),
          .priority = std::clamp<double>(message.priority, 1, 1000),
          .curve = {}};
}

// One broker a socket, whatever becomes of the socket's file.
Descriptor locked(const std::string& path) {
  const auto name = path + ".lock";
  Descriptor file(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat found {};
  if (!file || fstat(file.get(), &found) != 0)
    throw Error(fmt::format("the broker cannot open {}", name), errno);
  if (found.st_uid != geteuid())
    throw Error(fmt::format("{} belongs to user {}", name, found.st_uid));
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    throw Error(fmt::format("another broker has the socket {}", path));
  return file;
}

}  // namespace

Broker::Broker(BrokerOptions options)
    : options_(std::move(options)),
      ledger_({.total = options_.total}),
      studies_(loop_, options_.total, *this) {
  broker_folder(options_.path);
  lock_ = locked(options_.path);
  for (const auto& holder : read_ledger(ledger_path(options_.path)))
    if (auto life = life_of(holder.process, holder.begun)) {
      const auto id = ledger_.remember(holder.need, holder.counted);
      remember(holder.process, holder.begun, holder.name, id, std::move(life));
    }
  const bool ours = !options_.listening;
  if (ours) options_.listening = listen_at(options_.path);
  begin();
  if (!ours) seen_.inode = 0;  // who listens there otherwise sees to the file
}

// A study under way ends first: it calls back into all that is here.
Broker::~Broker() {
  arrivals_.reset();
  signals_.clear();
  for (auto* timer : {&wake_, &sample_, &check_}) timer->reset();
  members_.clear();
  connections_.clear();
  studies_.close();
}

void Broker::begin() {
  listen();
  for (const int number : {SIGTERM, SIGINT})
    signals_.push_back(std::make_unique<Signal>(loop_, number, [this] { loop_.stop(); }));
  wake_ = std::make_unique<Timer>(loop_, [this] { settle(); });
  sample_ = std::make_unique<Timer>(loop_, [this] { sample(); });
  sample_->every(options_.sample_ms);
  check_ = std::make_unique<Timer>(loop_, [this] { look(); });
  check_->every(kCheckMs);
  seen_.idle_since_ms = loop_.now_ms();
}

void Broker::listen() {
  const int flags = fcntl(options_.listening.get(), F_GETFL);
  fcntl(options_.listening.get(), F_SETFL, flags | O_NONBLOCK);
  watch_arrivals();
  struct stat found {};
  if (lstat(options_.path.c_str(), &found) == 0) seen_.inode = found.st_ino;
}

void Broker::watch_arrivals() {
  arrivals_ =
      std::make_unique<Readiness>(loop_, options_.listening.get(), [this] { accept_all(); });
}

void Broker::run() {
  loop_.run();
  if (!failure_.empty()) throw Error(failure_);
  struct stat found {};
  if (lstat(options_.path.c_str(), &found) == 0 && found.st_ino == seen_.inode)
    unlink(options_.path.c_str());
}

// ---------------------------------------------------------------- peers

void Broker::accept_all() {
  for (;;) {
    Descriptor socket(
        accept4(options_.listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && errno == ECONNABORTED) continue;
    if (!socket) {  // out of descriptors, say: look() watches again
      if (errno != EAGAIN && errno != EINTR) arrivals_.reset();
      return;
    }
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) continue;
    if (peer.uid != geteuid() && peer.uid != 0) {
      if (seen_.strangers.insert(peer.uid).second && options_.say)
        options_.say(fmt::format("user {} tried to connect and was refused", peer.uid));
      continue;
    }
    const bool full = connections_.size() >= kMostConnections;
    if (connections_.size() >= 2 * kMostConnections) continue;
    auto& fresh = connections_.emplace_back(
        loop_, std::move(socket), peer.pid,
        [this](Connection& from, const Message& message, Descriptor file) {
          came(from, message, std::move(file));
        },
        [this](Connection& gone) { disconnected(gone); });
    if (full) fresh.refuse("as many are connected as can be");
  }
}

Member* Broker::of(const Connection& connection) {
  const auto found = std::ranges::find_if(
      members_, [&](const auto& member) { return member.second.connection == &connection; });
  return found == members_.end() ? nullptr : &found->second;
}

// Its process lives, as far as is known: what it holds stays its own. One that only waits holds
// nothing, and asks again if it wants to.
void Broker::disconnected(Connection& gone) {
  if (auto* member = of(gone)) {
    member->connection = nullptr;
    const auto id = member->id;
    if (ledger_.jobs().at(id).admitted())
      ledger_.goes_away(id);
    else
      forget(id);
  }
  connections_.remove_if([&](const Connection& connection) { return &connection == &gone; });
  settle();
}

void Broker::came(Connection& from, const Message& message, Descriptor file) try {
  auto* const member = of(from);
  switch (message.kind) {
    case MessageKind::hello:
      if (member != nullptr) return from.refuse("a connection is one job's");
      hello(from, message, file);
      break;
    case MessageKind::acknowledge:
      if (member != nullptr)
        ledger_.answers(member->id, message.number, message.bytes, loop_.now_ms());
      break;
    case MessageKind::needs:
      if (member != nullptr) needs(*member, message, std::move(file));
      break;
    case MessageKind::lease:
      if (member != nullptr) ledger_.asks(member->id, message.number, message.most, message.bytes);
      break;
    case MessageKind::bye:
      leaves(from, message);
      break;
    case MessageKind::list:
      return send_listing(from);
    default:
      return from.refuse("that is not for a broker");
  }
  settle();
} catch (const std::exception& error) {
  from.refuse(in_words(error));
}

Member* Broker::of(pid_t process, std::uint64_t begun) {
  const auto known = std::ranges::find_if(members_, [&](const auto& member) {
    return member.second.process == process && member.second.begun == begun;
  });
  return known == members_.end() ? nullptr : &known->second;
}

// Over any connection of its process: its own may be lost. It hears that it was heard.
void Broker::leaves(Connection& from, const Message& message) {
  from.send({.kind = MessageKind::bye});
  if (auto* member = of(from.peer(), message.begun)) forget(member->id);
  from.let_go();
}

void Broker::hello(Connection& from, const Message& message, const Descriptor& page) {
  if (message.bytes > Ledger::kMost || message.least > Ledger::kMost)
    return from.refuse("no machine has so many bytes");
  if (from.peer() == 0)
    return from.refuse("your process has no number here: another container, without --pid=host");
  auto* const known = of(from.peer(), message.begun);
  if (known == nullptr) return admit(from, message, page);
  auto& member = *known;  // it has lost its connection, or the broker was another
  if (auto* before = std::exchange(member.connection, &from))
    before->refuse("its process has connected again");  // children have inherited it, say
  if (message.bytes == 0) {  // another program in the same process, which holds nothing
    member.connection = nullptr;
    forget(member.id);
    return admit(from, message, page);
  }
  member.page = std::make_unique<HeldPage>(page);
  member.told_drive = 0;
  const auto& job = ledger_.jobs().at(member.id);
  auto need = told_need(message);
  need.curve = job.need.curve;
  if (job.admitted()) ledger_.returns(member.id, need, message.bytes);
  if (!store()) return;
  studies_.look();
}

// One that holds something already has had it from a broker whose ledger is lost.
void Broker::admit(Connection& from, const Message& message, const Descriptor& page) {
  const auto need = told_need(message);
  auto life = life_of(from.peer(), message.begun);
  if (!life) return from.refuse("your process is not the one that this hello names");
  const bool holds = message.bytes != 0;  // and goes on to, whatever is said here
  if (message.least == 0 || (!holds && !ledger_.could_fit(need)))
    return from.refuse(
        fmt::format("{} are the least that {} can train with, and there are {} for all",
                    print_bytes(need.ranks * need.least),
                    need.ranks == 1 ? "it" : fmt::format("its {} ranks", need.ranks),
                    print_bytes(ledger_.total())));
  const auto id = holds ? ledger_.remember(need, message.bytes) : ledger_.joins(need);
  if (holds) ledger_.returns(id, need, message.bytes);
  remember(from.peer(), message.begun, printable(text_of(message.name)), id, std::move(life));
  auto& member = members_.at(id);
  member.connection = &from;
  member.page = std::make_unique<HeldPage>(page);
  if (!holds) return;
  member.told_drive = 0;
  store();
}

void Broker::remember(pid_t process, std::uint64_t begun, const std::string& name, JobId id,
                      Descriptor life) {
  auto& member = members_[id];
  member.id = id;
  member.process = process;
  member.begun = begun;
  member.name = name;
  member.life = std::move(life);
  member.death = std::make_unique<Readiness>(loop_, member.life.get(), [this, id] {
    forget(id);
    settle();
  });
}

void Broker::forget(JobId id) {
  ledger_.ends(id);
  if (auto* connection = members_.at(id).connection) connection->let_go();
  members_.erase(id);
  studies_.ends(id);
  seen_.idle_since_ms = loop_.now_ms();
  store();
  studies_.look();
}

void Broker::needs(Member& member, const Message& message, Descriptor file) {
  if (message.least == 0 || message.least > Ledger::kMost)
    throw Error("it names no amount that a training could work with");
  auto need = told_need(message);
  need.curve = ledger_.jobs().at(member.id).need.curve;  // until it has another
  ledger_.needs(member.id, need);
  member.drive = message.number;
  if (!file) return;
  auto trace = read_sealed(file, kLongestProfile);
  if (!trace) throw Error("a profile comes as a sealed memory file");
  studies_.profiled(member.id, std::move(*trace), text_of(message.policy),
                    text_of(message.machine));
}

// ---------------------------------------------------------------- the ledger

void Broker::settle() {
  const auto orders = ledger_.orders(loop_.now_ms());
  if (!orders.empty() && !store()) return;
  for (const auto& order : orders) {
    const auto& member = members_.at(order.job);
    Message message{.kind = MessageKind::grant,
                    .number = order.number,
                    .bytes = order.bytes,
                    .most = order.most,
                    .sample_ms = options_.sample_ms};
    if (member.connection != nullptr) member.connection->send(message);
  }
  lend();
  share_drives();
  tell_waiting();
  wake_->stop();
  if (const auto at = ledger_.wakes_at())
    wake_->in(*at > loop_.now_ms() ? *at - loop_.now_ms() : 1);
}

// No lease is in the ledger's file: after a restart nothing is granted before each job has come
// back without one, or is dead.
void Broker::lend() {
  for (const auto& lease : ledger_.lends()) {
    ++seen_.leases;
    if (auto* connection = members_.at(lease.job).connection)
      connection->send({.kind = MessageKind::lease, .number = lease.number, .bytes = lease.bytes});
  }
}

// Among the jobs of each drive. A small change is not worth a new plan.
void Broker::share_drives() {
  if (ledger_.frozen()) return;  // who uses a drive is not known again yet
  std::map<std::uint64_t, std::vector<Member*>> drives;
  for (auto& [id, member] : members_)
    if (ledger_.jobs().at(id).admitted()) drives[member.drive].push_back(&member);
  for (const auto& [drive, members] : drives) {
    std::vector<Need> needs;
    std::vector<std::uint64_t> bytes;
    for (const auto* member : members) {
      const auto& job = ledger_.jobs().at(member->id);
      needs.push_back(job.need), bytes.push_back(job.most);
    }
    const auto parts = drive_parts(needs, bytes);
    for (std::size_t i = 0; i < parts.size(); ++i) tell_drive(*members[i], parts[i]);
  }
}

void Broker::tell_drive(Member& member, double part) {
  constexpr std::uint32_t kWhole = 1000, kIgnored = 50;
  const auto thousandths = static_cast<std::uint32_t>(std::lround(kWhole * part));
  auto& told = member.told_drive;
  const auto change = thousandths > told ? thousandths - told : told - thousandths;
  if (member.connection == nullptr || change < kIgnored) return;
  member.connection->send({.kind = MessageKind::drive, .drive_thousandths = thousandths});
  told = thousandths;
}

// What cannot be written is granted to nobody: jobs keep what they have without a broker, too.
bool Broker::store() noexcept try {
  std::vector<Holder> holders;
  for (const auto& [id, member] : members_)
    if (const auto& job = ledger_.jobs().at(id); job.admitted())
      holders.push_back({.process = member.process,
                         .begun = member.begun,
                         .name = member.name,
                         .need = job.need,
                         .counted = job.counted()});
  write_ledger(ledger_path(options_.path), holders);
  return true;
} catch (const std::exception& error) {
  failure_ = in_words(error);
  loop_.stop();
  return false;
}

void Broker::tell_waiting() {
  for (auto& [id, member] : members_) {
    if (ledger_.jobs().at(id).admitted() || member.connection == nullptr) continue;
    auto why = ledger_.why_waiting(id);
    if (why == member.told) continue;
    Message message{.kind = MessageKind::waiting};
    put(message.text, why);
    member.connection->send(message);
    member.told = std::move(why);
  }
}

// ---------------------------------------------------------------- what memory is worth

Need Broker::need_of(JobId id) const { return ledger_.jobs().at(id).need; }

void Broker::learned(JobId id, std::vector<CurvePoint> curve) {
  auto need = ledger_.jobs().at(id).need;
  need.curve = std::move(curve);
  ledger_.needs(id, need);
}

void Broker::suggested(std::map<JobId, std::uint64_t> shares) {
  ledger_.suggest(std::move(shares));
}

void Broker::unreadable(JobId id, const std::string& why) {
  if (auto* connection = members_.at(id).connection) connection->refuse(why);
}

void Broker::unknown(const std::string& why) {
  if (options_.say) options_.say("a job's gain by memory is not known: " + why);
}

// ---------------------------------------------------------------- the socket's file

// A socket's file that somebody removed is made again.
void Broker::look() try {
  if (!arrivals_) watch_arrivals();
  struct stat found {};
  const bool there = lstat(options_.path.c_str(), &found) == 0 && found.st_ino == seen_.inode;
  if (!there && seen_.inode != 0) {
    auto fresh = listen_at(options_.path);
    arrivals_.reset();
    options_.listening = std::move(fresh);
    listen();
    if (options_.say)
      options_.say(fmt::format("{} was removed, and is there again", options_.path));
  }
  for (auto& connection : connections_)
    if (connection.silent_since_ms() + kFirstWordMs < loop_.now_ms())
      connection.refuse("it has said nothing");
  if (!members_.empty() || !connections_.empty()) seen_.idle_since_ms = loop_.now_ms();
  if (options_.idle_s && loop_.now_ms() - seen_.idle_since_ms > 1000ull * *options_.idle_s)
    loop_.stop();
} catch (const std::exception& error) {
  if (options_.say) options_.say(in_words(error));
}

}  // namespace sentinel
