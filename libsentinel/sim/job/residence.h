// Where every tensor of one job is during a simulation, and the transfers that change it.
//
// Each slower tier has three lanes: planned promotions, demand fetches, demotions. A lane carries
// one transfer at a time, in order; lanes share the links. What is copied ahead goes out where no
// demotion waits.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "plan/step/footprint.h"
#include "plan/step/storage.h"
#include "sentinel/machine.h"
#include "sim/fluid/commons.h"
#include "sim/job/recency.h"

namespace sentinel::sim {

using StorageId = Id<struct StorageTag>;

// nowhere: not alive. lost: alive, its contents discarded.
enum class Whereabouts : std::uint8_t { nowhere, fast, slow, arriving, leaving, lost };

class Residence {
 public:
  Residence(const Profile&, std::span<const Placement>, Commons&, Account&);

  const plan::Storage& storage(StorageId s) const { return storages_[s.index()]; }
  const std::vector<plan::Storage>& storages() const { return storages_; }
  StorageId of(TensorId) const;  // kNone for foreign and empty tensors
  static constexpr StorageId kNone{UINT32_MAX};

  Whereabouts place(StorageId s) const { return body(s).place; }
  bool queued_in(StorageId s) const { return body(s).wanted; }
  bool demanded(StorageId s) const { return body(s).demanded; }
  std::uint32_t tier(StorageId s) const { return body(s).tier; }
  std::uint64_t missing(StorageId s) const;  // bytes of fast memory that holding it would add
  bool has_room(StorageId s) const { return commons_.room(missing(s)); }
  // Which of these find no room together, even where nothing else is held. Those in fast memory, or
  // on their way from or to it, come first, then those that do not live yet.
  std::vector<StorageId> beyond(std::span<const StorageId>);

  bool create(StorageId);  // in fast memory, without transfer; false if there is no room
  void create_in(StorageId, std::uint32_t tier);  // in a slower one
  void destroy(StorageId);
  void promote(StorageId);
  void demote(StorageId, std::uint32_t tier);
  bool recall(StorageId);  // a demotion that has not started is taken back
  void discard(StorageId);
  void copy(StorageId, std::uint32_t tier);  // stays, and is copied while the way out is idle
  void fetch(StorageId, double delay_us);    // by demand
  void expedite(StorageId);                  // a queued promotion that is waited for goes first
  void stream(StorageId);                    // has passed through an op; ends in the slow tier
  void used(StorageId, bool written);

  // An operand of the op that is starting or running; never a victim.
  void pin(StorageId, bool on);
  bool pinned(StorageId s) const { return body(s).pins > 0; }
  // What has changed, for who waits for tensors.
  struct Changes {
    std::vector<StorageId>
        stirred;                 // pinned, each as often as its place has changed; theirs to take
    std::uint64_t holdings = 0;  // grows when a granule comes to be held, or is no more
  };
  Changes& changes() { return changes_; }
  double last_use_us(StorageId s) const { return body(s).last_use; }
  // The unpinned tensor in fast memory that was unused the longest; kNone if there is none.
  StorageId longest_unused() const;

  void settle();  // starts what can start

 private:
  struct Body {
    Whereabouts place = Whereabouts::nowhere;
    std::uint32_t tier = 1;  // where the slow copy is, or goes
    bool copied = false;     // the slow copy has the present contents
    bool stored = false;     // space is held in `tier`
    bool held = false, wanted = false, demanded = false;
    bool ends = false;        // lost, and of its memory only what is not wholly within it is held
    std::uint32_t ahead = 0;  // the tier that it is to be copied to while it stays
    std::uint32_t pins = 0;
    double fault_us = 0;      // of a demand fetch that has not started
    TransferId transfer = 0;  // in fast memory: of a copy ahead
    double last_use = 0;
  };
  struct Lane {
    std::deque<StorageId> queue;
    std::deque<StorageId> ahead;   // to be copied while `queue` is empty; each if it still says so
    std::deque<StorageId> copies;  // made so; each if it is still there
    TransferId busy = 0;
  };
  struct Lanes {
    Lane promotion, demand, demotion;
  };

  Body& body(StorageId s) { return bodies_[s.index()]; }
  const Body& body(StorageId s) const { return bodies_[s.index()]; }
  bool hold(StorageId);
  void let_go(StorageId, bool all = true);
  void forget_copy(StorageId);
  void forget_transfer(StorageId);
  void store(StorageId, std::uint32_t tier);
  void make_room(std::uint32_t tier, std::uint64_t bytes);
  void set_place(StorageId, Whereabouts);
  void touch(StorageId);
  void start_in(StorageId, Lane&);
  void start_out(StorageId, Lane&);
  void arrived(StorageId, Lane&);
  void left(StorageId, Lane&);
  void settle_out(std::uint32_t tier);
  void settle_in(Lane&, bool demand);

  Commons& commons_;
  Account& account_;
  std::vector<plan::Storage> storages_;
  plan::Footprint footprint_;
  plan::Holding holding_;
  plan::Holding together_;  // nothing, but within beyond()
  std::vector<Body> bodies_;
  std::vector<StorageId> of_;
  std::vector<Lanes> lanes_;  // per tier
  Recency unused_;            // in fast memory
  Changes changes_;
};

}  // namespace sentinel::sim
