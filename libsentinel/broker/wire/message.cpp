// Takes a packet for a message only where every part of it is one.
#include "broker/wire/message.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

template <std::size_t kBytes>
bool ends(const FixedText<kBytes>& text) {
  return std::ranges::find(text, '\0') != text.end();
}

}  // namespace

std::optional<Message> parse_message(std::string_view packet) {
  Message message;
  if (packet.size() != sizeof message) return std::nullopt;
  std::memcpy(&message, packet.data(), sizeof message);
  const bool known = message.magic == Message::kMagic && message.version == Message::kVersion &&
                     message.kind >= MessageKind::hello && message.kind <= MessageKind::drive;
  const bool whole =
      ends(message.policy) && ends(message.machine) && ends(message.name) && ends(message.text);
  if (!known || !whole) return std::nullopt;
  return message;
}

Descriptor sealed_file(std::string_view content) {
  Descriptor file(memfd_create("sentinel-message", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  bool made = static_cast<bool>(file);
  for (std::size_t done = 0; made && done < content.size();) {
    const auto wrote = write(file.get(), content.data() + done, content.size() - done);
    made = wrote > 0;
    if (made) done += static_cast<std::size_t>(wrote);
  }
  if (!made || fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
    throw Error("could not make a file in memory for the broker", errno);
  return file;
}

std::optional<std::string> read_sealed(const Descriptor& file, std::size_t most) {
  struct stat status {};
  if (!file || (fcntl(file.get(), F_GET_SEALS) & kSeals) != kSeals ||
      fcntl(file.get(), F_GET_SEALS) < 0 || fstat(file.get(), &status) != 0 || status.st_size < 0 ||
      static_cast<std::size_t>(status.st_size) > most)
    return std::nullopt;
  std::string content(static_cast<std::size_t>(status.st_size), '\0');
  for (std::size_t done = 0; done < content.size();) {
    const auto got =
        pread(file.get(), content.data() + done, content.size() - done, static_cast<off_t>(done));
    if (got <= 0) return std::nullopt;
    done += static_cast<std::size_t>(got);
  }
  return content;
}

}  // namespace sentinel
