// Which idle tensors leave fast memory, and when they come back, so that what is held never
// exceeds the limit at any op.
//
// A *gap* is the idle time of a storage between two uses. While it is *absent* it holds nothing:
// positions [out, in) of the gap. It is demoted at the end of `use` and holds its space through one
// further op (the write), so out = use + 2; where the very next op needs the space, out = use + 1
// and that op waits for the write. It is promoted at the start of `in`, by rule at the start of the
// interval before the one that needs it (paper, IV-D).
//
// The paper demotes every tensor that neither this interval nor the next one needs. Here a gap is
// used only where memory would not suffice otherwise: ops are visited in order, and where the limit
// is exceeded the idle tensor of the farthest next use goes (Belady's rule). With little memory the
// outcome is the paper's; with more, traffic shrinks to what is needed. Where a promotion at the
// interval's start would exceed the limit it is put off to the first op from which on there is room
// at every op until its use, at the latest that use itself.
//
// A *remade* gap is given. Its storage is discarded at the end of `use`, is absent from there on,
// and replays make it again before `next`; it holds those granules of its ends all the while that
// do not lie wholly within it (plan/step/footprint.h).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step/footprint.h"
#include "plan/step/interval.h"
#include "plan/step/storage.h"

namespace sentinel::plan {

struct Gap {
  std::uint32_t storage = 0;        // index into the storages
  std::uint32_t use = 0, next = 0;  // positions; next is one past the lifetime if not `needed`
  std::uint32_t target = 0;         // promotion by the interval rule
  std::uint32_t out = 0, in = 0;    // absent during [out, in) while evicted
  bool needed = true;               // a use follows
  bool evicted = false;
  bool forced = false;     // begins at a streamed op, which leaves it scattered
  bool unfetched = false;  // the next use is streamed, or overwrites it whole
  bool given = false;      // evicted from the beginning, by ScheduleInput::given
  bool remade = false;     // while evicted: discarded, and made again
  double cost = 1;         // of its absence, of that of a move of as many bytes
  std::uint32_t tier = 0;  // where it was given one
};

// An eviction that was decided before: of the gap of `storage` that begins at `use`.
struct GivenGap {
  std::uint32_t storage = 0, use = 0;
  std::uint32_t in = 0;  // to be promoted then; later if there is no room, earlier by the interval
  std::uint32_t tier = 0;  // 0: not decided
  bool remade = false;
  double cost = 1;
};

// That a replay before op `position` of the step reads the storage. It is among the storage's uses,
// though its op may not name it.
struct ReplayRead {
  std::uint32_t storage = 0, position = 0;
  friend auto operator<=>(const ReplayRead&, const ReplayRead&) = default;
};

// What holds for every interval length: computed once.
struct Demand {
  std::vector<std::uint64_t> all;       // per op: everything alive is held
  std::vector<std::uint64_t> must;      // per op: what the op uses and what never moves
  std::vector<std::uint64_t> reserved;  // per op: what never moves
};
Demand demand(const Profile&, const std::vector<Storage>&, const std::vector<bool>& movable,
              const Footprint&);

struct ScheduleInput {
  const Profile& profile;
  const std::vector<Storage>& storages;
  const std::vector<bool>& movable;
  const Footprint& footprint;
  const Demand& demand;
  std::uint64_t limit = 0;  // bytes that may be held
  // What an op overwrites whole is not fetched for it. False where slow memory is used in place.
  bool overwritten_unfetched = false;
  // By storage and use. The rest is evicted only where these do not suffice, and of these, what
  // turns out not to be needed stays.
  std::vector<GivenGap> given = {};
  std::vector<ReplayRead> replay_reads = {};  // sorted
};

struct Schedule {
  std::vector<Gap> gaps;            // evicted ones only, by storage and use
  std::vector<std::uint64_t> held;  // per op, streamed ops at the limit
  std::vector<std::uint32_t> streamed;
};

Schedule schedule(const ScheduleInput&, const Intervals&);

// Per storage: it should stay out of fast memory so that no op needs more of it than the limit. Of
// the storages that an op exceeding it needs, those with the fewest openings a byte.
std::vector<bool> never_fitting(const ScheduleInput&);

// Units overlapped by more tensors than this never leave: deciding for all of them is not worth it.
constexpr std::size_t kCrowd = 64;

}  // namespace sentinel::plan
