// A pair of sockets, which have inodes of their own: a program's file of that number is not taken
// for one.
#include "runtime/limit/bell.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "sentinel/error.h"

namespace sentinel {

Bell::Bell() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error("could not make a pair of sockets", errno);
  ears_ = OurFile(out_of_reach(ends[0]));
  rope_ = OurFile(out_of_reach(ends[1]));
}

Bell::~Bell() {
  ears_.close();
  rope_.close();
}

// What does not fit into the socket has rung already.
void Bell::ring() noexcept {
  if (rope_.is_ours()) send(rope_.number(), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool Bell::await(int socket, int timeout_ms) noexcept {
  pollfd wait[] = {{.fd = socket, .events = POLLIN, .revents = 0},
                   {.fd = ears_.is_ours() ? ears_.number() : -1, .events = POLLIN, .revents = 0}};
  const bool came = poll(wait, 2, timeout_ms) > 0;
  char rung[64];
  if (wait[1].revents != 0) recv(wait[1].fd, rung, sizeof rung, MSG_DONTWAIT);
  return came;
}

}  // namespace sentinel
