// The broker's socket: where it is, how to reach it, and one packet after the other.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "broker/wire/message.h"

namespace sentinel {

// Of the user: $XDG_RUNTIME_DIR/sentinel/broker.sock; without that variable, in a folder of the
// user's own below /tmp.
std::string broker_path();
// The folder of a socket's path, made if it is not there. Throws Error where others could put files
// there.
Descriptor broker_folder(const std::string& path);

// A socket that listens at `path`, for the user alone. What lies there and nobody listens at is
// replaced. Throws Error.
Descriptor listen_at(const std::string& path);

// Not blocking. Nothing: errno says why; ECONNREFUSED and ENOENT: nobody listens.
Descriptor connect_to(const std::string& path) noexcept;

struct Packet {
  std::string bytes;  // more than a message where it is none
  Descriptor file;    // that came with it, if one did
};
// EAGAIN: nothing has come, or there is no room. The end of a connection is ECONNRESET.
int send_message(int socket, const Message&, int file = -1) noexcept;  // 0, or an errno
int receive_packet(int socket, Packet&) noexcept;                      // 0, or an errno

// Waits up to so long (-1: for ever) for something to come. False: nothing has.
bool await_packet(int socket, int timeout_ms) noexcept;

// When a process began, in the kernel's ticks; 0: there is none. Tells one from a later process of
// the same number.
std::uint64_t process_begun(pid_t process);

}  // namespace sentinel
