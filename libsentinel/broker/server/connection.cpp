// Reads a packet a turn, and keeps what finds no room.
#include "broker/server/connection.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace sentinel {
namespace {

constexpr std::uint64_t kNever = 1ull << 62;

}  // namespace

Connection::Connection(Loop& loop, Descriptor socket, pid_t peer, Came came, Ended ended)
    : socket_(std::move(socket)),
      peer_(peer),
      came_(std::move(came)),
      ended_(std::move(ended)),
      silent_since_ms_(loop.now_ms()),
      watch_(loop, socket_.get(), [this] { ready(); }) {}

void Connection::end() {
  if (std::exchange(over_, true)) return;
  const auto ended = ended_;
  ended(*this);
}

void Connection::ready() {
  if (let_go_ || !flush()) return end();
  // One packet a turn: then it is the others', and what it says may be the end of this object.
  Packet packet;
  const int code = receive_packet(socket_.get(), packet);
  if (code == EAGAIN) return;
  if (code != 0) return end();
  const auto message = parse_message(packet.bytes);
  if (!message) return refuse("that was no message of this version");
  silent_since_ms_ = kNever;
  const auto came = came_;
  came(*this, *message, std::move(packet.file));
}

bool Connection::flush() {
  while (!waiting_.empty()) {
    const int code =
        send_message(socket_.get(), waiting_.front().message, waiting_.front().file.get());
    if (code == EAGAIN) break;
    if (code != 0) return false;
    waiting_.pop_front();
  }
  watch_.for_room(!waiting_.empty());
  return true;
}

// A peer that is let go is told of by the loop, never within a call of the broker's.
void Connection::send(const Message& message, Descriptor file) {
  if (over_) return;
  waiting_.push_back({message, std::move(file)});
  if (waiting_.size() > kMostWaiting || !flush()) let_go();
}

void Connection::refuse(const std::string& why) {
  Message message{.kind = MessageKind::refused};
  put(message.text, why);
  send(message);
  let_go();
}

// What it has sent already is not read any more.
void Connection::let_go() {
  let_go_ = true;
  waiting_.clear();
  shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace sentinel
