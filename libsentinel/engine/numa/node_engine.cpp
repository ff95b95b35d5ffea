#include "engine/numa/node_engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>

#include "alloc/ranges.h"
#include "base/quiet_thread.h"
#include "engine/host/stop.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kUnlimited = ~0ull >> 1;

std::unique_ptr<FaultLoop> open_loop() {
  try {
    return FaultLoop::open();
  } catch (const Error&) {  // it serves counting alone
    return nullptr;
  }
}

void append(Runs& runs, GranuleIndex index) {
  if (!runs.empty() && runs.back().first + runs.back().count == index)
    ++runs.back().count;
  else
    runs.push_back({index, 1});
}

class Stopwatch {
 public:
  explicit Stopwatch(double& us) : us_(us) {}
  ~Stopwatch() { us_ += std::chrono::duration<double, std::micro>(Clock::now() - began_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double& us_;
  Clock::time_point began_ = Clock::now();
};

}  // namespace

NodeEngine::NodeEngine(const NodeEngineOptions& options, std::unique_ptr<NodeCalls> calls)
    : nodes_(options.nodes),
      calls_(std::move(calls)),
      mapped_bytes_(options.arena_bytes + kGranule),
      granules_(options.arena_bytes / options.granule_bytes),
      mover_in_(*calls_, options.granule_bytes),
      mover_out_(*calls_, options.granule_bytes),
      loop_(open_loop()) {
  granule_ = options.granule_bytes;
  arena_bytes_ = options.arena_bytes;
  arena_ = map_private();
  if (loop_) {
    loop_->set_missing_handler(&NodeEngine::on_missing, this);
    loop_->set_minor_handler(&NodeEngine::on_minor, this);
    loop_->set_lost_handler([](void*) noexcept { stop_training(kClosed); }, nullptr);
  }
  promoter_ = quiet_thread([this] { promoter(); });
  demoter_ = quiet_thread([this] { demoter(); });
}

NodeEngine::~NodeEngine() {
  {
    const Guard guard(lock_);
    stop_ = true;
  }
  promoter_work_.notify_all();
  demoter_work_.notify_all();
  promoter_.join();
  demoter_.join();
  loop_.reset();
  munmap(reinterpret_cast<void*>(arena_), mapped_bytes_);
}

Run NodeEngine::run_of(std::uintptr_t address, std::uint64_t bytes) const noexcept {
  const auto first = (address - arena_) / granule_;
  const auto last = (address - arena_ + (bytes == 0 ? 0 : bytes - 1)) / granule_;
  return {static_cast<GranuleIndex>(first), static_cast<GranuleIndex>(last - first + 1)};
}

// Shrinking: what is over leaves, what no plan wants first.
void NodeEngine::set_budget(std::uint64_t bytes) {
  Guard guard(lock_);
  budget_ = bytes == 0 ? kUnlimited : bytes / granule_;
  room_for(0);
  for (const bool wanted : {false, true})
    for (GranuleIndex i = 0; i < top_ && held_ > budget_ + queued_out_ + leaving_; ++i)
      if (granules_[i].place == Place::fast && (granules_[i].wanted != 0) == wanted) queue_out(i);
  settled_.wait(guard, [&] { return held_ <= budget_ || queued_out_ + leaving_ == 0; });
  counters_.peak_bytes = held_ * granule_;
  room_changed();
}

bool NodeEngine::occupy(std::uintptr_t address, std::uint64_t bytes) noexcept {
  Guard guard(lock_);
  const auto run = run_of(address, bytes);
  top_ = std::max(top_, run.first + run.count);
  for (auto i = run.first; i < run.first + run.count; ++i) ++granules_[i].live;  // none is dead now
  const bool fast = budget_ != 0 && !counting_ && make_room(run, guard);
  for (auto i = run.first; i < run.first + run.count; ++i) granules_[i].wanted += fast;
  if (fast)
    born_fast(run);
  else if (!counting_)
    for_runs(
        run, [](const Granule& g) { return !counted(g.place); },
        [this](Run part) { bind(part, false); });
  for (auto i = run.first; i < run.first + run.count; ++i) granules_[i].touched = true;
  return fast;
}

// There is room for all of it. Where nothing else lives in a granule its old contents are worth
// nothing: pages that are still in slow memory are dropped, which is cheaper than moving them.
void NodeEngine::born_fast(Run run) noexcept {
  for (auto i = run.first; i < run.first + run.count; ++i) {
    recall(granules_[i]);
    if (granules_[i].place == Place::slow && granules_[i].live > 1) queue_in(i);
  }
  for_runs(
      run, [](const Granule& g) { return g.place == Place::slow; },
      [this](Run born) {
        drop(born);
        bind(born, true);
        held_ += born.count;
        for (auto i = born.first; i < born.first + born.count; ++i)
          granules_[i].place = Place::fast;
      });
  counters_.peak_bytes = std::max(counters_.peak_bytes, held_ * granule_);
}

bool NodeEngine::vacate(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept {
  const Guard guard(lock_);
  const auto run = run_of(address, bytes);
  bool fast = true;
  for (auto i = run.first; i < run.first + run.count; ++i) {
    auto& granule = granules_[i];
    --granule.live;
    if (wanted) unwant(i);
    if (granule.live != 0) continue;
    if (granule.place == Place::queued_in) granule.place = Place::slow;
    recall(granule);
    if (granule.place == Place::fast)
      list_dead(i);
    else
      fast = false;
  }
  if (roomless_) room_changed();
  return fast;
}

void NodeEngine::demote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  const auto run = run_of(address, bytes);
  for (auto i = run.first; i < run.first + run.count; ++i) unwant(i);
}

void NodeEngine::unwant(GranuleIndex index) noexcept {
  auto& granule = granules_[index];
  if (--granule.wanted != 0) return;
  if (granule.place == Place::queued_in) granule.place = Place::slow;
  if (granule.place == Place::fast && granule.live != 0) queue_out(index);
}

void NodeEngine::promote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  const auto run = run_of(address, bytes);
  for (auto i = run.first; i < run.first + run.count; ++i) {
    auto& granule = granules_[i];
    ++granule.wanted;
    if (granule.place == Place::slow) queue_in(i);
    recall(granule);
  }
}

// On its way, and somebody wants it. What is leaving comes back when it has left.
bool NodeEngine::coming(const Granule& granule) const noexcept {
  return granule.place == Place::queued_in || granule.place == Place::arriving ||
         (granule.place == Place::leaving && granule.wanted != 0);
}

Arrival NodeEngine::arrival(std::uintptr_t address, std::uint64_t bytes) const noexcept {
  const Guard guard(lock_);
  const auto run = run_of(address, bytes);
  for (auto i = run.first; i < run.first + run.count; ++i)
    if (coming(granules_[i])) return roomless_ ? Arrival::no_room : Arrival::no_time;
  return Arrival::in_time;
}

// A promotion that finds no room, and nothing that makes any, stays in slow memory.
void NodeEngine::await(std::uintptr_t address, std::uint64_t bytes) noexcept {
  Guard guard(lock_);
  const auto run = run_of(address, bytes);
  for (auto i = run.first; i < run.first + run.count; ++i) {
    if (!coming(granules_[i])) continue;
    const auto given_up = [&] { return granules_[i].place == Place::queued_in && hopeless(); };
    const Stopwatch stalled(counters_.stall_us);
    settled_.wait(guard, [&] { return !coming(granules_[i]) || given_up() || stop_; });
  }
}

void NodeEngine::leave(std::uintptr_t address, std::uint64_t bytes) noexcept {
  const Guard guard(lock_);
  const auto run = run_of(address, bytes);
  for (auto i = run.first; i < run.first + run.count; ++i)
    if (granules_[i].place == Place::queued_in) granules_[i].place = Place::slow;
}

std::uint64_t NodeEngine::fast_bytes(std::uintptr_t address, std::uint64_t bytes) const noexcept {
  const Guard guard(lock_);
  const auto run = run_of(address, bytes);
  std::uint64_t fast = 0;
  for (auto i = run.first; i < run.first + run.count; ++i)
    fast += granules_[i].place == Place::fast || granules_[i].place == Place::queued_out;
  return fast == run.count ? bytes : bytes * fast / run.count;
}

// --- room

// Within the budget, if need be by dropping what lies dead in fast memory.
bool NodeEngine::room_for(std::uint64_t granules) noexcept {
  while (held_ + granules > budget_ && !dead_.empty()) drop_dead(held_ + granules - budget_);
  return held_ + granules <= budget_;
}

// The promoter finds out how much.
void NodeEngine::room_changed() noexcept {
  roomless_ = false;
  promoter_work_.notify_one();
}

// A birth waits for demotions that are under way if they make enough room for it.
bool NodeEngine::make_room(Run run, Guard& guard) noexcept {
  const auto needed = [&] {
    std::uint64_t count = 0;
    for (auto i = run.first; i < run.first + run.count; ++i) count += !counted(granules_[i].place);
    return count;
  };
  const auto enough = [&] {
    const auto under_way = queued_out_ + leaving_;
    return under_way != 0 && held_ + needed() <= budget_ + under_way;
  };
  if (room_for(needed())) return true;
  retry_refused();
  if (!enough()) return false;
  const Stopwatch stalled(counters_.stall_us);
  settled_.wait(guard, [&] { return room_for(needed()) || !enough(); });
  return held_ + needed() <= budget_;
}

void NodeEngine::drop_dead(std::uint64_t most) noexcept {
  auto& listed = dead_.front();
  Run run{listed.first, 0};
  while (listed.count > 0 && run.count < most) {
    auto& granule = granules_[listed.first];
    granule.listed &= ~kListedDead;
    const bool dead = granule.live == 0 && granule.place == Place::fast;
    if (!dead && run.count > 0) {
      granule.listed |= kListedDead;  // looked at again next time
      break;
    }
    ++listed.first, --listed.count;
    if (!dead) {
      run.first = listed.first;
      continue;
    }
    granule.place = Place::slow;
    ++run.count;
  }
  if (listed.count == 0) dead_.pop_front();
  drop(run);
  held_ -= run.count;
}

// Gives the pages of the run's granules back.
void NodeEngine::drop(Run run) noexcept {
  for_runs(
      run, [](const Granule& g) { return g.touched; },
      [this](Run part) {
        calls_->drop(pointer(part.first), part.count * granule_);
        for (auto i = part.first; i < part.first + part.count; ++i) granules_[i].touched = false;
      });
}

// Where the next first touch goes. Ranges of one policy are one range to the kernel as well.
void NodeEngine::bind(Run run, bool fast) noexcept {
  for_runs(
      run, [fast](const Granule& g) { return g.binds_fast != fast; },
      [&](Run part) {
        calls_->bind(pointer(part.first), part.count * granule_, fast ? nodes_.fast : nodes_.slow);
        for (auto i = part.first; i < part.first + part.count; ++i) granules_[i].binds_fast = fast;
      });
}

void NodeEngine::list_dead(GranuleIndex index) noexcept {
  if (granules_[index].listed & kListedDead) return;
  granules_[index].listed |= kListedDead;
  append(dead_, index);
}

void NodeEngine::list_refused(GranuleIndex index) noexcept {
  if (granules_[index].listed & kListedRefused) return;
  granules_[index].listed |= kListedRefused;
  append(refused_, index);
}

// Room is lacking: what was pinned or shared with a child may have become free to leave. Asked once
// an op, for it may as well stay so for ever.
void NodeEngine::retry_refused() noexcept {
  if (refused_.empty() || std::exchange(retried_, clock_.load()) == clock_.load()) return;
  for (const auto& run : std::exchange(refused_, {}))
    for (auto i = run.first; i < run.first + run.count; ++i) {
      auto& granule = granules_[i];
      granule.listed &= ~kListedRefused;
      if (granule.place == Place::fast && granule.live != 0 && granule.wanted == 0) queue_out(i);
    }
}

// Memory that the former kind of step has left behind.
void NodeEngine::reuse_dead_blocks() noexcept {
  const Guard guard(lock_);
  if (counting_) return;
  const auto dead = [](const Granule& g) {
    return g.live == 0 && g.touched && (g.place == Place::slow || g.place == Place::fast);
  };
  for_runs({0, top_}, dead, [this](Run part) {
    for (auto i = part.first; i < part.first + part.count; ++i) {
      held_ -= counted(granules_[i].place);
      granules_[i].place = Place::slow;
    }
    drop(part);
  });
  room_changed();
}

// --- queues

void NodeEngine::queue_in(GranuleIndex index) noexcept {
  granules_[index].place = Place::queued_in;
  append(promotions_, index);
  promoter_work_.notify_one();
}

void NodeEngine::queue_out(GranuleIndex index) noexcept {
  granules_[index].place = Place::queued_out;
  ++queued_out_;
  append(demotions_, index);
  demoter_work_.notify_one();
}

void NodeEngine::recall(Granule& granule) noexcept {
  if (granule.place != Place::queued_out) return;
  granule.place = Place::fast;
  --queued_out_;
}

// --- fork

void NodeEngine::wait_until_settled(Guard& guard) noexcept {
  frozen_ = true;
  settled_.wait(guard, [this] { return arriving_ == 0 && leaving_ == 0; });
}

void NodeEngine::thaw() noexcept {
  frozen_ = false;
  promoter_work_.notify_one();
  demoter_work_.notify_one();
}

void NodeEngine::before_fork() noexcept {
  lock_.lock();
  Guard guard(lock_, std::adopt_lock);
  wait_until_settled(guard);
  guard.release();
}

void NodeEngine::after_fork_in_parent() noexcept {
  thaw();
  lock_.unlock();
}

void NodeEngine::after_fork_in_child() noexcept {
  if (loop_) loop_->abandon_in_child();
  lock_.unlock();
}

EngineCounters NodeEngine::counters() const {
  const Guard guard(lock_);
  auto counters = counters_;
  counters.held_bytes = held_ * granule_;
  mover_in_.add_to(counters);
  mover_out_.add_to(counters);
  return counters;
}

}  // namespace sentinel
