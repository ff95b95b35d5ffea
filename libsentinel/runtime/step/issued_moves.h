// A plan's moves on the tensors that live: issued at once, or when they are due that the plan puts
// off. It knows no op's place in its step. Guarded by the session's lock.
#pragma once

#include <span>
#include <vector>

#include "engine/engine.h"
#include "runtime/step/bucket.h"
#include "runtime/step/kept_borders.h"
#include "runtime/step/move_timer.h"
#include "runtime/step/put_off.h"
#include "runtime/step/space.h"

namespace sentinel {

class IssuedMoves {
 public:
  // Both outlive it. At most so many borders are kept.
  IssuedMoves(Engine&, Space&, std::size_t most_borders);

  // To be given up at the end of an op.
  struct GivenUp {
    const Bucket* bucket;
    OpId op;
    TensorId id;
    LiveTensor tensor;
    Engine::Ends ends;
  };
  // At that op, in this order. What is to be discarded goes to that list, or else is demoted.
  void issue(Bucket&, std::span<const Move>, OpId at, std::vector<GivenUp>* discards = nullptr);

  // Moves that are put off are issued when they are due: at the latest when an op uses their
  // tensor, and at the step's end. The timer, which outlives this, rings when one is; without a
  // timer nothing is put off.
  void put_off_with(MoveTimer& timer) { timer_ = &timer; }
  void issue_due();
  void used(TensorId tensor) {
    if (!put_off_.empty()) issue_now(put_off_.used(tensor));
  }
  void step_ends() { issue_now(put_off_.all()); }
  void forget() { put_off_.forget(); }  // another plan is followed

  KeptBorders& borders() { return borders_; }

 private:
  void issue_now(std::vector<Move>);

  Engine& engine_;
  Space& space_;
  KeptBorders borders_;
  PutOffMoves put_off_;
  Bucket* bucket_ = nullptr;  // whose moves are put off
  OpId at_{0};                // the op of the last moves
  MoveTimer* timer_ = nullptr;
};

}  // namespace sentinel
