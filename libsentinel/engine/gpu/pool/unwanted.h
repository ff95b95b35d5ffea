// Blocks that no plan wants here: they leave at once, or, where there is no place for them or an op
// uses them, later, once there may be room. The departures see to how they leave.
//
// The engine's lock guards it.
#pragma once

#include <cstdint>
#include <deque>

#include "engine/gpu/pool/departures.h"

namespace sentinel::gpu::pool {

class Unwanted {
 public:
  Unwanted(Monitor&, Streams&, Blocks&, Places&, Departures&);

  void end(Index, bool wanted, Together&);  // a tensor in it does
  // A tensor in it is not wanted any more. `launching`: an op is about to be launched.
  void demote(Index, bool sinks, bool launching, Together&);

  std::uint64_t count() const { return late_.size(); }
  // Some of them may find a place now.
  void note_room() { room_ = true; }
  void room_came();  // the same, and a helper is to look
  bool may_leave() const { return room_ && !late_.empty(); }
  void leave_at_last();
  void op_runs(std::uint64_t op);

 private:
  bool leave(Index, Together&);
  void leave_later(Index);
  void keep_for_op(Index);

  Monitor& monitor_;
  Streams& streams_;
  Blocks& blocks_;
  Places& places_;
  Departures& departures_;
  std::deque<Index> late_;  // no plan wants them here, and there was no place for them
  bool room_ = false;       // there may be again
  std::uint64_t kept_ = 0;  // some of them were used in this op; 0: none
};

}  // namespace sentinel::gpu::pool
