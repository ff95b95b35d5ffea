// Places whose transfer has not begun: those that are to be read, or filled, and those that the
// device is to write. Awaited reads go first. Places at rest that go down are elsewhere
// (rest_order.h), and so are transfers under way (file_transfers.h).
//
// The engine's lock guards it.
#pragma once

#include <cstddef>
#include <deque>

#include "engine/gpu/store/place.h"

namespace sentinel::gpu {

class TransferQueue {
 public:
  void keep(HostPlace*, bool now);  // `now`: somebody waits for it from now on
  void read(HostPlace*, bool now);
  void fill(HostPlace*, void* device, bool now);
  void hasten(HostPlace*);    // somebody waits, if it is queued
  void forgo(HostPlace*);     // nobody waits any more
  void withdraw(HostPlace*);  // no plan wants it any more
  void forget(HostPlace*);    // it ends
  void drop_ahead();          // all that nobody waits for, but the device's own
  bool awaits() const { return awaited_ > 0; }
  std::size_t awaited() const { return awaited_; }

  bool reads() const { return !reads_.empty(); }
  HostPlace* first_read() const { return reads_.front(); }
  void take_read();
  bool was_last_awaited(const HostPlace*);  // it has been taken, and nobody waits for others

  void write(HostPlace* place) { writes_.push_back(place); }
  bool writes() const { return !writes_.empty(); }
  HostPlace* take_write();
  bool take_back(HostPlace*);  // false: its write has begun

 private:
  std::deque<HostPlace*> reads_;   // those for which somebody waits first
  std::deque<HostPlace*> writes_;  // the device's own
  std::size_t awaited_ = 0;        // to be read, and awaited
};

}  // namespace sentinel::gpu
