// What the node engine knows of each granule of the arena. One record each, in memory that comes
// with first use, so that addresses never used cost nothing.
//
//            born with room                            demote
//   slow -----------------------------> fast -----------------------> queued_out
//    ^  \ promote                        ^  <------ promoted again ------/   |
//    |   v              room             |                                   v
//    |  queued_in --------------> arriving                                leaving
//    +---<--- cancelled             nothing moved: slow                      |
//    +-----------------------------------<-----------------------------------+
//
// Counted against the budget are all but slow and queued_in. Guarded by the engine's lock; while
// a granule is arriving or leaving its mover alone changes the state.
#pragma once

#include <cstdint>
#include <deque>

namespace sentinel {

enum class Place : std::uint8_t { slow, queued_in, arriving, fast, queued_out, leaving };

struct Granule {
  std::uint16_t live = 0;    // tensors that overlap it
  std::uint16_t wanted = 0;  // of these, those that the plan wants in fast memory
  Place place = Place::slow;
  bool binds_fast = false;  // its first touch goes to the fast node
  bool touched = false;     // it may hold pages
  std::uint8_t listed = 0;  // kListedDead, kListedRefused
};

constexpr std::uint8_t kListedDead = 1;     // in the list of those that may be dropped
constexpr std::uint8_t kListedRefused = 2;  // in the list of those that should leave and did not

constexpr bool counted(Place place) { return place != Place::slow && place != Place::queued_in; }

using GranuleIndex = std::uint32_t;
struct Run {  // of granules
  GranuleIndex first = 0, count = 0;
};
using Runs = std::deque<Run>;

}  // namespace sentinel
