// One peer of the broker: packets that come, messages that go. A peer that reads nothing, or that
// sends what is no message, is let go.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>

#include "base/descriptor.h"
#include "broker/server/loop.h"
#include "broker/wire/message.h"
#include "broker/wire/socket.h"

namespace sentinel {

class Connection {
 public:
  using Came = std::function<void(Connection&, const Message&, Descriptor file)>;
  using Ended = std::function<void(Connection&)>;

  // `ended` is called once, from the loop, and may end this object, as may `came`. Throws Error.
  Connection(Loop&, Descriptor socket, pid_t peer, Came came, Ended ended);

  pid_t peer() const { return peer_; }
  // When it was made, while it has said nothing yet; then never.
  std::uint64_t silent_since_ms() const { return silent_since_ms_; }
  void send(const Message&, Descriptor file = {});
  // Says why, as far as the peer listens; then it has ended.
  void refuse(const std::string& why);
  void let_go();  // the loop tells of its end

 private:
  static constexpr std::size_t kMostWaiting = 64;  // messages for a peer that does not read

  struct Outgoing {
    Message message;
    Descriptor file;
  };

  void ready();
  bool flush();  // false: the peer has gone
  void end();

  const Descriptor socket_;
  const pid_t peer_;
  const Came came_;
  const Ended ended_;
  std::deque<Outgoing> waiting_;
  std::uint64_t silent_since_ms_;
  bool over_ = false, let_go_ = false;
  Readiness watch_;
};

}  // namespace sentinel
