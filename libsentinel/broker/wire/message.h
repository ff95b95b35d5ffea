// What jobs and the broker say to each other: one packet of fixed size a message, in the machine's
// own byte order, for both are on one machine. What is larger travels as a sealed memory file
// beside it (docs/design/broker.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace sentinel {

enum class MessageKind : std::uint16_t {
  hello = 1,    // job: least, most, priority, name, begun, training, ranks; bytes it holds already
  waiting,      // broker: text
  grant,        // broker: number, bytes, most to plan for; how often to tell what is held
  acknowledge,  // job: number, bytes that it holds at most; all leases are back
  needs,        // job: least, usual, most, priority; its profile as a file, policy and machine;
                // number: the device that its slow tier is on
  refused,      // broker: text
  bye,          // job: begun; it holds nothing any more. Broker: it has heard that
  list,         // anybody
  listing,      // broker: JSON as a file
  lease,        // job: number, most that it wants beyond its base, bytes of that it holds at most;
                // broker: that number, bytes that it may hold beyond its base
  drive,        // broker: thousandths of the drive's time that plans may count on
};

template <std::size_t kBytes>
using FixedText = std::array<char, kBytes>;

// All of it is sent, so it holds no padding and no pointer.
struct Message {
  static constexpr std::uint32_t kMagic = 0x42544e53;  // "SNTB"
  static constexpr std::uint16_t kVersion = 4;

  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  MessageKind kind = MessageKind::hello;
  std::uint64_t number = 0, bytes = 0, least = 0, most = 0, usual = 0;
  std::uint64_t begun = 0;     // when the process began, as /proc has it
  std::uint64_t training = 0;  // a rank's: the same for all of them
  std::uint32_t priority = 1, sample_ms = 0;
  std::uint32_t ranks = 1;  // of the training, on this machine
  std::uint32_t drive_thousandths = 0;
  FixedText<64> policy{}, machine{};
  FixedText<128> name{};
  FixedText<176> text{};
};
static_assert(sizeof(Message) == 512 && std::is_trivially_copyable_v<Message>);

// What does not fit is left out at the end.
template <std::size_t kBytes>
void put(FixedText<kBytes>& text, std::string_view words) {
  text = {};
  words.copy(text.data(), kBytes - 1);
}
template <std::size_t kBytes>
std::string text_of(const FixedText<kBytes>& text) {
  return text.data();
}

// Of a packet as it came. Nothing: it is no message of this version, or a text in it has no end.
std::optional<Message> parse_message(std::string_view packet);

// A file in memory that nobody can change any more. Throws Error.
Descriptor sealed_file(std::string_view content);
// Its content, if it is such a file of at most so many bytes; else nothing.
std::optional<std::string> read_sealed(const Descriptor&, std::size_t most);

}  // namespace sentinel
