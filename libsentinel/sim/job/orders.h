// The controller's moves: asked for, put off until they are due, and carried out on the job's
// tensors. It decides nothing; it alone turns a Move into what Residence does.
#pragma once

#include <map>
#include <vector>

#include "sentinel/plan.h"
#include "sim/fluid/commons.h"
#include "sim/job/residence.h"

namespace sentinel::sim {

class Orders {
 public:
  Orders(const Commons& commons, Residence& residence) : commons_(commons), residence_(residence) {}

  std::vector<Move>& asked() { return asked_; }  // the controller appends to it
  void issue();                                  // all that was asked, in order

  void apply_due();            // what was put off until now
  double next_due_us() const;  // infinite where nothing is put off
  void forget_put_off() { put_off_.clear(); }

 private:
  struct PutOff {
    Move move;
    double issued_us;
  };
  void apply(const Move&);

  const Commons& commons_;
  Residence& residence_;
  std::vector<Move> asked_;
  std::multimap<double, PutOff> put_off_;  // by when they are due
};

}  // namespace sentinel::sim
