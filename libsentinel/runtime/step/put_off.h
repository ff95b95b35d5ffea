// Moves of a plan that are issued some time after the op that triggers them (Move::delay_us).
// Guarded by the session's lock.
#pragma once

#include <limits>
#include <map>
#include <vector>

#include "sentinel/plan.h"

namespace sentinel {

class PutOffMoves {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  bool empty() const { return moves_.empty(); }
  double next_us() const { return empty() ? kNever : moves_.begin()->first; }
  void add(const Move& move, double due_us) { moves_.emplace(due_us, move); }

  // Takes what is due, in its order.
  std::vector<Move> due(double now_us) {
    std::vector<Move> due;
    while (!empty() && next_us() <= now_us) due.push_back(moves_.extract(moves_.begin()).mapped());
    return due;
  }
  std::vector<Move> all() { return due(kNever); }

  // An op uses the tensor: it stays, for the times were other than those that the delay was
  // reckoned with. If it is to come, it comes now.
  std::vector<Move> used(TensorId tensor) {
    std::vector<Move> now;
    for (auto at = moves_.begin(); at != moves_.end();) {
      if (at->second.tensor != tensor) {
        ++at;
        continue;
      }
      if (at->second.direction == Direction::promote) now.push_back(at->second);
      at = moves_.erase(at);
    }
    return now;
  }

  void forget() { moves_.clear(); }

 private:
  std::multimap<double, Move> moves_;  // by when they are due
};

}  // namespace sentinel
