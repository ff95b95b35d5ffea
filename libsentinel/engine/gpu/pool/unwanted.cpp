// Has demoted blocks leave now, or notes them and tries again when room comes.
#include "engine/gpu/pool/unwanted.h"

#include <utility>

namespace sentinel::gpu::pool {

Unwanted::Unwanted(Monitor& monitor, Streams& streams, Blocks& blocks, Places& places,
                   Departures& departures)
    : monitor_(monitor),
      streams_(streams),
      blocks_(blocks),
      places_(places),
      departures_(departures) {}

// What still lives beside it leaves if no plan wants that, and what begins in its place waits for
// its kernels, on whatever stream they are.
void Unwanted::end(Index index, bool wanted, Together& together) {
  ChunkBlock& b = blocks_[index];
  b.wanted -= wanted ? 1 : 0;
  if (--b.live == 0) return departures_.die(index, together);
  if (b.state == State::resident && !streams_.in_one_order())
    b.mark = streams_.last_use(b.mark, together.now);
  if (!blocks_.in_use(b) && !leave(index, together)) leave_later(index);
}

void Unwanted::demote(Index index, bool sinks, bool launching, Together& together) {
  ChunkBlock& b = blocks_[index];
  --b.wanted;
  b.sinks = sinks && b.wanted == 0;  // else by another tensor
  if (b.sinks && b.state == State::absent) places_.store().sink(b.lies);
  if (launching && blocks_.in_use(b))
    keep_for_op(index);
  else if (!leave(index, together))
    leave_later(index);
}

// False: there is no place for it now, or it has to come first.
bool Unwanted::leave(Index index, Together& together) {
  ChunkBlock& b = blocks_[index];
  if (b.wanted > 0 || b.pins > 0 || monitor_.program_ending()) return true;
  b.queued = false;
  if (b.state == State::absent) places_.store().withdraw(b.lies);
  if (b.state == State::arriving || b.state == State::coming)
    return false;  // Arrivals::has_come() sees to it
  if (b.state != State::resident || b.live == 0) return true;
  if (auto* place = places_.find(b.sinks)) return departures_.leave(index, place, together), true;
  if (places_.store().may_grow()) room_came();  // the helper has it grow
  return false;
}

// When there is a place, or when somebody needs its chunk.
void Unwanted::leave_later(Index index) {
  if (!std::exchange(blocks_[index].late, true)) late_.push_back(index);
}

// When an op runs that came after the one that uses it now.
void Unwanted::keep_for_op(Index index) {
  leave_later(index);
  kept_ = blocks_[index].used;
}

void Unwanted::leave_at_last() {
  room_ = false;
  Together together;
  for (auto count = late_.size(); count > 0; --count) {
    const Index index = late_.front();
    const bool stays = blocks_.in_use(blocks_[index]);
    if (!stays && !leave(index, together)) break;
    late_.pop_front();
    blocks_[index].late = false;
    if (stays) keep_for_op(index);
  }
  departures_.see_off(together);
}

void Unwanted::room_came() {
  room_ = true;
  monitor_.wake_helpers();
}

void Unwanted::op_runs(std::uint64_t op) {
  if (kept_ == 0 || kept_ == op) return;
  kept_ = 0;
  room_came();
}

}  // namespace sentinel::gpu::pool
