// Where granules lie that have left the device: pinned memory of the host and, where that is
// limited, a file below it. What has lain in memory longest goes down, ahead of the need; what
// comes back is read into memory before it is copied to the device. Where the device reads and
// writes the file itself (G10, section 4: one step between GPU and SSD), the host's memory is for
// what rests there: what belongs below, or finds no memory, is written from the device, and what
// lies below is read into it.
//
//        take               rest              memory is short            written
//   ---------> open ----------------> at rest ----------------> going ----------> below
//                ^                      |  ^                      |                 |
//                +-------- use ---------+  +--- come <--- read --------------------+
//                +-------- use -------------------------------------+
//
// Its parts: the memory (pinned_memory.h), what rests in it (rest_order.h), what is to move
// (transfer_queue.h), and the file with what moves (file_transfers.h). They see places; this
// decides which goes where, and when.
//
// All calls are made under the engine's lock, whose mutex the store is given: its own thread takes
// it, too, and lets it go while it waits for transfers. So does grow(), while memory is pinned. It
// calls back with the lock held.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/gpu/store/file_transfers.h"
#include "engine/gpu/store/pinned_memory.h"
#include "engine/gpu/store/rest_order.h"
#include "engine/gpu/store/transfer_queue.h"

namespace sentinel::gpu {

class HostStore {
 public:
  using Place = HostPlace;  // of one granule
  using Lock = std::unique_lock<std::mutex>;
  struct Events {
    std::function<void()> room;                      // memory may be had again
    std::function<void(std::uint32_t, Lock&)> came;  // that owner's granule is here
    // What the device wrote, or read: that owner's.
    std::function<void(std::uint32_t, Lock&)> written, filled;
    std::function<void(const std::exception&)> failed;  // a transfer: what lay there is lost
    std::function<void()> ended;  // the device's library went first: nothing moves any more
  };
  static constexpr std::uint64_t kLeast = 16;  // granules of memory
  // Bytes that a plan may count on: the rest is kept free for what is on its way.
  static std::uint64_t capacity(const HostOptions&, std::uint64_t granule);

  // Throws Error where the file cannot be had, or `bytes` are less than kLeast granules.
  HostStore(Driver&, std::mutex&, std::uint64_t granule, const HostOptions&, Events);
  ~HostStore();  // without the lock; gives back all memory
  // Without the lock. No transfer is under way and no event comes any more.
  void stop();
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // A place with memory, or null while none is free. There may be more memory yet: whoever wants
  // it has it pinned, without the lock.
  Place* take();
  bool may_grow() const { return memory_.may_grow(); }
  bool lacks(std::uint64_t granules) const { return memory_.lacks(granules); }
  void grow(std::uint64_t granules, Lock&);
  bool growing() const { return memory_.growing(); }
  // Threads in want of memory for what has to leave, now one more or less. Whether any thread waits
  // for memory, those included that wait for a read.
  void want(int change);
  bool wanted() const { return wanting_ > 0 || queue_.awaits(); }
  bool limited() const { return transfers_.has_file(); }

  // A place without memory, for the device's own transfers; null: it has none.
  Place* take_below();
  // From now on nothing is read that nobody waits for, and the device moves nothing itself but what
  // has begun: all else passes the host's memory.
  void program_ends();
  // From the device's memory, which stays as it is until `written`; the owner does not give the
  // place until then. Into it, until `filled`; `now`: somebody waits.
  void write(Place*, std::uint32_t owner, void* device);
  void fill(Place*, void* device, bool now);
  bool take_back(Place*);  // false: its write has begun; else the place is given
  void hasten(Place*);     // is being filled, and somebody waits

  void* memory(const Place* place) const;  // null: it lies below, or will
  // Its contents, the owner's, are complete and may go down. `sinks`: that is where they belong.
  void rest(Place*, std::uint32_t owner, bool sinks);
  void sink(Place*);  // they belong below
  // Whether it can be copied, or filled, from; the way to that, with which it belongs below no
  // more. `now`: somebody waits, and it stays once it has come.
  bool here(const Place*) const;
  void read(Place*, bool now);
  void forgo(Place*);     // nobody waits any more
  void withdraw(Place*);  // no plan wants it any more; who waits still does
  void use(Place*);       // it is copied from, until it is given back
  void give(Place*);      // nobody needs it any more

  Flow reading() const { return transfers_.reading(); }
  Flow writing() const { return transfers_.writing(); }

 private:
  bool is_short() const;
  void start();
  void start_writes();
  void go_down(Place*);
  Place* new_place(void* memory);
  void finished(const Completion&, Lock&);
  void end(Place*);
  void free_memory(Place*);
  void enter_rest(Place*);
  void wake();
  void run();

  std::mutex& mutex_;
  Events events_;
  PinnedMemory memory_;
  FileTransfers transfers_;
  TransferQueue queue_;
  RestOrder rest_;
  std::vector<std::unique_ptr<Place>> places_;
  std::vector<Place*> unused_;
  std::uint64_t ahead_ = 0;  // granules to have free ahead of the need
  int wanting_ = 0;          // threads in want of memory
  bool over_ = false, ending_ = false;
  std::thread thread_;  // where there is a file
};

}  // namespace sentinel::gpu
