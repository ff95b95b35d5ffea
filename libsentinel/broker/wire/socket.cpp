// Unix sockets of packets, and the descriptors that come with them.
#include "broker/wire/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/folder.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

constexpr int kBacklog = 512;  // trainings that begin at the same moment

std::optional<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  path.copy(address.sun_path, path.size());
  return address;
}

Descriptor make_socket() {
  return Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Who listens is this user, or root.
bool is_trusted(const Descriptor& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

}  // namespace

std::string broker_path() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return fmt::format("{}/sentinel/broker.sock", runtime);
  return fmt::format("/tmp/sentinel-{}/broker.sock", geteuid());
}

Descriptor broker_folder(const std::string& path) {
  const auto name = fs::absolute(path).parent_path().string();
  if (mkdir(name.c_str(), 0700) != 0 && errno != EEXIST)
    throw Error(fmt::format("cannot make the broker's folder {}", name), errno);
  Descriptor folder(open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat found {};
  if (!folder || fstat(folder.get(), &found) != 0)
    throw Error(fmt::format("cannot open the broker's folder {}", name), errno);
  if (found.st_uid != geteuid() && found.st_uid != 0)
    throw Error(fmt::format("the broker's folder {} belongs to user {}", name, found.st_uid));
  if (const auto hand = other_hand(folder, S_IWGRP | S_IWOTH))
    throw Error(fmt::format("the broker's socket cannot be in {}: {}", name, print_hand(*hand)));
  return folder;
}

Descriptor listen_at(const std::string& path) {
  const auto attempt = fmt::format("the broker cannot listen at {}", path);
  const auto address = address_of(path);
  if (!address) throw Error(fmt::format("{}: the name is too long for a socket", attempt));
  auto socket = make_socket();
  if (!socket) throw Error(attempt, errno);
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode))
      throw Error(fmt::format("{}: something that is no socket lies there", attempt));
    if (connect_to(path)) throw Error(fmt::format("{}: another program does already", attempt));
    unlink(path.c_str());
  }
  const auto mask = umask(0177);
  const int bound =
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address);
  const int code = errno;
  umask(mask);
  if (bound != 0) throw Error(attempt, code);
  if (listen(socket.get(), kBacklog) != 0) throw Error(attempt, errno);
  return socket;
}

Descriptor connect_to(const std::string& path) noexcept {
  const auto address = address_of(path);
  auto socket = make_socket();
  if (!address) errno = ENAMETOOLONG;
  if (!address || !socket) return {};
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    const int code = errno;
    socket = {};
    errno = code;
  } else if (!is_trusted(socket)) {
    socket = {};
    errno = EPERM;
  }
  return socket;
}

int send_message(int socket, const Message& message, int file) noexcept {
  iovec part{const_cast<Message*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{.msg_iov = &part, .msg_iovlen = 1};
  if (file >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    auto* const right = CMSG_FIRSTHDR(&header);
    right->cmsg_level = SOL_SOCKET;
    right->cmsg_type = SCM_RIGHTS;
    right->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(right), &file, sizeof file);
  }
  for (;;) {
    if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
    if (errno != EINTR) return errno == EPIPE ? ECONNRESET : errno;
  }
}

int receive_packet(int socket, Packet& packet) noexcept {
  constexpr std::size_t kFiles = 4;  // one is ours; a stranger's others are closed
  char bytes[sizeof(Message) + 1];
  alignas(cmsghdr) char control[CMSG_SPACE(kFiles * sizeof(int))] = {};
  iovec part{bytes, sizeof bytes};
  msghdr header{
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t got;
  do got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return errno;
  packet.file = {};
  for (auto* right = CMSG_FIRSTHDR(&header); right; right = CMSG_NXTHDR(&header, right)) {
    if (right->cmsg_level != SOL_SOCKET || right->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= right->cmsg_len; at += sizeof(int)) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(right) + at, sizeof file);
      Descriptor held(file);
      if (!packet.file) packet.file = std::move(held);
    }
  }
  if (got == 0) return ECONNRESET;
  packet.bytes.assign(bytes, static_cast<std::size_t>(got));
  return 0;
}

bool await_packet(int socket, int timeout_ms) noexcept {
  pollfd wait{.fd = socket, .events = POLLIN, .revents = 0};
  return poll(&wait, 1, timeout_ms) > 0;
}

// The 22nd word of the line; the second may hold blanks, and ends with the last parenthesis.
std::uint64_t process_begun(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  std::size_t at = line.rfind(')');
  for (int word = 2; word < 22 && at != line.npos; ++word) at = line.find(' ', at + 1);
  std::uint64_t begun = 0;
  if (at != line.npos) std::from_chars(line.data() + at + 1, line.data() + line.size(), begun);
  return begun;
}

}  // namespace sentinel
