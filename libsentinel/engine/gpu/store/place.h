// Where one granule lies that has left the device, and how it stands: the record that the store's
// parts share. HostStore makes it and gives it out as a name; nobody else looks into it. The
// engine's lock guards it.
#pragma once

#include <cstdint>
#include <list>

namespace sentinel::gpu {

struct HostPlace {
  void* memory = nullptr;
  std::int64_t slot = -1;  // of the file: has the contents, unless they are on their way there
  std::uint32_t owner = 0;
  enum class Way : std::uint8_t { none, down, up } way = Way::none;
  bool resting = false, queued = false;
  bool kept = false;       // somebody waits for it: it may not go down
  bool staged = false;     // came up for a plan: goes down only where something has to leave
  bool used = false;       // it is copied from
  bool sinks = false;      // it belongs below
  bool ended = false;      // given back while it was on its way
  void* device = nullptr;  // memory of the device that it is written from, or fills
  std::list<HostPlace*>::iterator at;
};

}  // namespace sentinel::gpu
