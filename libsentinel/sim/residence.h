// Where every tensor is during a simulation, and the transfers that change it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "plan/footprint.h"
#include "plan/storage.h"
#include "sentinel/machine.h"
#include "sim/fabric.h"
#include "sim/simulator.h"

namespace sentinel::sim {

using StorageId = Id<struct StorageTag>;

enum class Place : std::uint8_t { nowhere, fast, slow, arriving, leaving };

class Residence {
 public:
  Residence(const Profile&, const Machine&, const SimOptions&);

  std::size_t size() const { return bodies_.size(); }
  const plan::Storage& storage(StorageId s) const { return storages_[s.index()]; }
  StorageId of(TensorId) const;  // kNone for foreign and empty tensors
  static constexpr StorageId kNone{UINT32_MAX};

  Place place(StorageId s) const { return body(s).place; }
  bool queued_in(StorageId s) const { return body(s).wanted; }
  std::uint32_t tier(StorageId s) const { return body(s).tier; }
  bool pinned(StorageId s) const { return body(s).pinned; }
  double last_use_us(StorageId s) const { return body(s).last_use; }
  bool has_room(StorageId s) const;
  std::uint64_t held_bytes() const { return holding_.bytes(); }
  std::uint64_t peak_bytes() const { return peak_; }

  bool create(StorageId);  // in fast memory, without transfer; false if there is no room
  void destroy(StorageId);
  void begin_absent(StorageId);  // before the first step
  void promote(StorageId);
  void demote(StorageId, std::uint32_t tier);
  bool fetch(StorageId, double delay_us);     // by demand, ahead of the queues; false if no room
  void expedite(StorageId);                   // a queued promotion that is waited for goes first
  void stream(StorageId, bool in, bool out);  // passes through an op; ends in the slow tier
  void used(StorageId, bool written, double now_us);
  void pin(StorageId s, bool on) { body(s).pinned = on; }

  // Time. settle() starts what can start.
  void settle();
  bool idle() const { return fabric_.idle(); }
  double now_us() const { return fabric_.now_us(); }
  void advance_to_event();
  void advance_to(double us);

  std::vector<Traffic> traffic() const;
  void reset_traffic();

 private:
  struct Body {
    Place place = Place::nowhere;
    std::uint32_t tier = 1;  // where the slow copy is, or goes
    bool copied = false;     // the slow copy has the present contents
    bool held = false, wanted = false, pinned = false;
    TransferId transfer = 0;
    double last_use = 0;
  };

  Body& body(StorageId s) { return bodies_[s.index()]; }
  const Body& body(StorageId s) const { return bodies_[s.index()]; }
  bool hold(StorageId);
  void let_go(StorageId);
  void start_in(StorageId, double delay_us);
  void start_out(StorageId);
  void complete(TransferId);
  void count(std::uint32_t from, std::uint32_t to, std::uint64_t bytes);

  const Machine& machine_;
  std::uint64_t capacity_;
  std::vector<plan::Storage> storages_;
  plan::Footprint footprint_;
  plan::Holding holding_;
  std::vector<Body> bodies_;
  std::vector<StorageId> of_;
  Fabric fabric_;
  std::map<TransferId, StorageId> flying_;
  std::vector<std::deque<StorageId>> in_queue_, out_queue_;  // per slower tier
  std::vector<TransferId> in_busy_, out_busy_;               // queue's own transfer, 0 if none
  std::vector<std::uint64_t> moved_;                         // from * tiers + to
  std::uint64_t peak_ = 0;
};

}  // namespace sentinel::sim
