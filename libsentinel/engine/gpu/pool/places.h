// Places on the host, or below, for blocks that leave: the store that has them, and the copies in
// after which a place is free again. It moves nothing to or from the device by itself.
//
// The engine's lock guards it, and the store.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "engine/gpu/pool/monitor.h"
#include "engine/gpu/pool/streams.h"

namespace sentinel::gpu::pool {

// A copy in, after which its place on the host is free.
struct CopyIn {
  Mark mark;
  HostStore::Place* place;
};

class Places {
 public:
  explicit Places(Streams& streams) : streams_(streams) {}
  void open(std::unique_ptr<HostStore> store) { store_ = std::move(store); }
  void close() { store_.reset(); }

  HostStore& store() { return *store_; }
  const HostStore& store() const { return *store_; }

  // `sinks`: what will lie there belongs below the host's memory. Null: there is none.
  HostStore::Place* find(bool sinks = false);
  // So many with memory, where there may be more of that still.
  void have(std::uint64_t count, Guard&);

  void copied_in(CopyIn arrival) { arrivals_.push_back(std::move(arrival)); }
  std::uint64_t arrivals() const { return arrivals_.size(); }
  bool arrivals_matter() const { return store_->limited() && !arrivals_.empty(); }
  Mark next_arrival() const { return arrivals_.front().mark; }
  void collect_arrivals();  // places of what has been copied in
  void drop_arrivals() { arrivals_.clear(); }

 private:
  Streams& streams_;
  std::unique_ptr<HostStore> store_;
  std::deque<CopyIn> arrivals_;
};

}  // namespace sentinel::gpu::pool
