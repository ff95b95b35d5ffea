// Applies moves when they are due, and puts the others off.
#include "sim/job/orders.h"

#include <limits>

namespace sentinel::sim {

double Orders::next_due_us() const {
  return put_off_.empty() ? std::numeric_limits<double>::infinity() : put_off_.begin()->first;
}

void Orders::apply(const Move& m) {
  const StorageId s = residence_.of(m.tensor);
  if (s == Residence::kNone) return;
  switch (m.direction) {
    case Direction::promote:
      return residence_.promote(s);
    case Direction::demote:
    case Direction::release:
      return residence_.demote(s, m.tier);
    case Direction::discard:
      return residence_.discard(s);
    case Direction::copy:
      return residence_.copy(s, m.tier);
  }
}

// Op times differ from those the delay was reckoned with: what was to leave after a use may be in
// use again, or have been since, when its time has come. Then it stays.
void Orders::apply_due() {
  while (!put_off_.empty() && put_off_.begin()->first <= commons_.now_us()) {
    const auto [move, issued_us] = put_off_.extract(put_off_.begin()).mapped();
    const StorageId s = residence_.of(move.tensor);
    if (s != Residence::kNone && move.direction != Direction::promote &&
        (residence_.pinned(s) || residence_.last_use_us(s) > issued_us))
      continue;
    apply(move);
  }
}

void Orders::issue() {
  for (const Move& m : asked_)
    if (m.delay_us > 0)
      put_off_.emplace(commons_.now_us() + m.delay_us, PutOff{m, commons_.now_us()});
    else
      apply(m);
  asked_.clear();
  residence_.settle();
}

}  // namespace sentinel::sim
