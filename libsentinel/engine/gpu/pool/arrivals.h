// Blocks that come in: memory is mapped behind them, and their contents are copied from the host,
// or read by the device from the file. Others decide whether a block should come, and when.
//
// The engine's lock guards it. Each function that is given a Guard may let that go.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/gpu/pool/room.h"
#include "engine/gpu/pool/unwanted.h"

namespace sentinel::gpu::pool {

class Arrivals {
 public:
  Arrivals(Driver&, Monitor&, Streams&, Blocks&, Chunks&, Places&, Departures&, Unwanted&, Room&);

  bool lies_on_host(Index) const;
  // Neighbours that lie on the host, or one block that lies below. How many of them come: 0 where
  // the first has to be looked at again, for the lock was released; nothing where there is no room.
  std::optional<Index> fetch(Index first, Index count, bool now, Guard&);
  void filled(Index);  // by the device

  // Whether the stream in has room for copies that nobody waits for. If not, a helper is to wait.
  bool may_copy_ahead();
  void await_queue(Guard&);  // what an op demands waits until a helper has
  // The helper's.
  bool queue_is_full() const { return full_; }
  void drain_queue(Guard&);

  // Whoever looks at them until this returns finds them `coming`.
  void map(Index first, const Chunks::List&, Guard&);

  std::uint64_t bytes() const { return promoted_bytes_; }

 private:
  std::optional<Index> fetch_below(Index, bool now, Guard&);
  void copy_in(Index first, Index count);
  void has_come(Index, Together&);

  Driver& driver_;
  Monitor& monitor_;
  Streams& streams_;
  Blocks& blocks_;
  Chunks& chunks_;
  Places& places_;
  Departures& departures_;
  Unwanted& unwanted_;
  Room& room_;
  std::uint64_t promoted_bytes_ = 0;
  bool full_ = false;  // the stream in, and somebody has more for it
};

}  // namespace sentinel::gpu::pool
