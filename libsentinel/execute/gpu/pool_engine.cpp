#include "execute/gpu/pool_engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <unordered_map>
#include <utility>

#include "base/quiet_thread.h"
#include "base/units.h"

namespace sentinel::gpu {
namespace {

constexpr std::uint64_t kSlotsASlab = 16;
const auto kPerThreadStream = reinterpret_cast<Stream>(2);  // CU_STREAM_PER_THREAD

// By engine: a thread may compute on several devices.
thread_local std::unordered_map<const PoolEngine*, Stream> streams_here;

[[noreturn]] void stop(const std::string& why) {
  const auto text = fmt::format(
      "sentinel: training stopped: {}. No wrong number was computed; resume from the last "
      "checkpoint.\n",
      why);
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
  _exit(125);
}

}  // namespace

template <class F>
void PoolEngine::checked(F&& f) noexcept {
  try {
    f();
  } catch (const std::exception& error) {
    stop(error.what());
  }
}

template <class F>
void PoolEngine::for_blocks(std::uintptr_t address, std::uint64_t bytes, F&& f) {
  if (in_child_ || bytes == 0) return;
  const auto first = (address - arena_) / granule_,
             last = (address - arena_ + bytes - 1) / granule_;
  for (auto index = first; index <= last; ++index) f(static_cast<Index>(index));
}

PoolEngine::PoolEngine(Driver& driver, const PoolOptions& options) : driver_(driver) {
  granule_ = round_up(options.granule_bytes, driver.granularity());
  arena_bytes_ = round_up(options.arena_bytes, granule_);
  blocks_.resize(arena_bytes_ / granule_);
  arena_ = driver_.reserve(arena_bytes_);
  for (Stream* stream : {&in_, &out_, &join_}) *stream = driver_.make_stream();
  thread_ = quiet_thread([this] { checked([this] { helper(); }); });
}

PoolEngine::~PoolEngine() {
  {
    const Guard guard(lock_);
    over_ = true;
    work_.notify_all();
  }
  thread_.join();
  checked([this] {
    Block all;
    Event end = last_use(all);
    for (Stream stream : {in_, out_}) {
      driver_.synchronize(end);
      driver_.record(end, stream);
    }
    driver_.synchronize(end);
    give_event(end);
    for (Index i = 0; i < blocks_.size(); ++i) {
      Block& b = blocks_[i];
      if (b.state != State::resident && b.state != State::leaving) continue;
      if (b.state == State::resident && b.event != nullptr) give_event(b.event);
      driver_.unmap(at(i), granule_);
      free_.push_back(b.chunk);
    }
    for (auto& departure : departures_) give_event(departure.event);
    for (Event event : events_) driver_.destroy_event(event);
    for (Chunk chunk : free_) driver_.destroy(chunk);
    for (void* slab : slabs_) driver_.unpin(slab);
    for (Stream stream : {in_, out_, join_}) driver_.destroy_stream(stream);
    driver_.unreserve(arena_, arena_bytes_);
  });
}

void PoolEngine::compute_on(Stream stream) {
  if (stream == kPerThreadStream)
    throw Error(
        "the default stream of each thread is no stream to compute on: events of one thread "
        "tell nothing of another's; use a stream that was made");
  streams_here[this] = stream;
}

Stream PoolEngine::here() const {
  const auto at = streams_here.find(this);
  return at == streams_here.end() ? nullptr : at->second;
}

void PoolEngine::forget(Stream stream) {
  const Guard guard(lock_);
  if (std::erase(computing_, stream) == 0) return;
  Event event = take_event();
  driver_.record(event, stream);
  driver_.wait(join_, event);
  give_event(event);
}

void PoolEngine::settle() {
  Guard guard(lock_);
  freed_.wait(guard, [this] { return under_way_ == 0; });
}

void PoolEngine::set_budget(std::uint64_t bytes) {
  Guard guard(lock_);
  const auto before = std::exchange(budget_, bytes == 0 ? ~0ull : bytes / granule_);
  device_ = ~0ull;  // others may have left it
  for (drop_surplus(); chunks_ > budget_; drop_surplus()) {
    if (under_way_ > 0 || evict_one()) {
      freed_.wait(guard);
    } else {
      budget_ = before;
      throw Error(fmt::format("a budget of {} does not hold what the op that runs uses",
                              print_bytes(bytes)));
    }
  }
  counters_.peak_bytes = chunks_ * granule_;
}

// ---------------------------------------------------------------- what the session calls

bool PoolEngine::occupy(std::uintptr_t address, std::uint64_t bytes) noexcept {
  bool fits = !in_child_;
  checked([&] {
    Guard guard(lock_);
    std::vector<Index> begun;
    for_blocks(address, bytes, [&](Index index) {
      if (!fits || !(fits = make_resident(index, guard))) return;
      Block& b = blocks_[index];
      ++b.live;
      ++b.wanted;
      use(index);
      begun.push_back(index);
    });
    if (!fits)
      for (Index index : begun) end(index, true);
    fetch_queued(guard);
  });
  return fits;
}

void PoolEngine::vacate(std::uintptr_t address, std::uint64_t bytes, bool wanted) noexcept {
  checked([&] {
    Guard guard(lock_);
    for_blocks(address, bytes, [&](Index index) { end(index, wanted); });
    fetch_queued(guard);
  });
}

void PoolEngine::touch(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    const Guard guard(lock_);
    for_blocks(address, bytes, [&](Index index) { use(index); });
  });
}

void PoolEngine::demote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    const Guard guard(lock_);
    for_blocks(address, bytes, [&](Index index) {
      Block& b = blocks_[index];
      if (--b.wanted > 0) return;
      b.queued = false;
      if (b.state == State::resident) leave(index);
    });
  });
}

void PoolEngine::promote(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    Guard guard(lock_);
    for_blocks(address, bytes, [&](Index index) {
      Block& b = blocks_[index];
      ++b.wanted;
      if (b.state == State::leaving) return recall(index);
      if (b.state != State::absent || b.queued) return;
      b.queued = true;
      queued_.push_back(index);
    });
    fetch_queued(guard);
  });
}

void PoolEngine::await(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    Guard guard(lock_);
    for_blocks(address, bytes, [&](Index index) {
      Block& b = blocks_[index];
      while (b.state != State::resident) {
        if (b.state == State::leaving) {
          recall(index);
          continue;
        }
        ++counters_.demand_faults;
        if (b.state == State::empty || !fetch(index, true, guard))
          throw Error(fmt::format("an op uses more than the {} of the device's memory that it may",
                                  print_bytes(std::min(budget_, device_) * granule_)));
      }
      use(index);
      await_event(b);
    });
    fetch_queued(guard);
  });
}

int PoolEngine::start_counting() noexcept { return -EOPNOTSUPP; }
int PoolEngine::stop_counting() noexcept { return -EOPNOTSUPP; }

void PoolEngine::before_fork() noexcept { lock_.lock(); }
void PoolEngine::after_fork_in_parent() noexcept { lock_.unlock(); }
void PoolEngine::after_fork_in_child() noexcept {
  in_child_ = true;
  lock_.unlock();
}

EngineCounters PoolEngine::counters() const {
  const Guard guard(lock_);
  return counters_;
}

// ---------------------------------------------------------------- chunks

void PoolEngine::drop_surplus() {
  for (; chunks_ > budget_ && !free_.empty(); --chunks_) {
    driver_.destroy(free_.back());
    free_.pop_back();
  }
}

// A new chunk, within the budget and what the device has.
bool PoolEngine::make_chunk(Chunk& chunk) {
  const auto made = driver_.create(granule_);
  if (!made) {
    device_ = chunks_;  // it is full: others use it, too
    return false;
  }
  ++chunks_;
  counters_.peak_bytes = std::max(counters_.peak_bytes, chunks_ * granule_);
  chunk = *made;
  return true;
}

// Room for one granule, `now` or not at all. Waits only while chunks are on their way out.
bool PoolEngine::find_chunk(Chunk& chunk, bool now, Guard& guard) {
  while (true) {
    drop_surplus();
    if (!free_.empty()) {
      chunk = free_.back();
      free_.pop_back();
      return true;
    }
    if (chunks_ < std::min(budget_, device_) && make_chunk(chunk)) return true;
    if (!dead_.empty() && driver_.done(blocks_[dead_.front()].event)) {
      const Index index = dead_.front();
      Block& b = blocks_[index];
      dead_.pop_front();
      b.dead = false;
      driver_.unmap(at(index), granule_);
      give_event(b.event);
      b.state = State::empty;
      free_.push_back(b.chunk);
      continue;
    }
    if (!now) return false;
    while (under_way_ <= waiting_ && evict_one()) {
    }
    if (under_way_ == 0)  // what was full once may have room again
      return chunks_ < budget_ && make_chunk(chunk);
    const auto begin = std::chrono::steady_clock::now();
    ++waiting_;
    freed_.wait(guard);
    --waiting_;
    counters_.stall_us +=
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
}

// What died first, then what no plan wants, then what was used longest ago; never what the op uses
// that runs.
bool PoolEngine::evict_one() {
  if (!dead_.empty()) return leave(dead_.front()), true;
  const auto now = clock_.load(std::memory_order_relaxed);
  const auto idle = [&](Index index) { return blocks_[index].used != now; };
  auto victim = std::ranges::find_if(
      by_use_, [&](Index index) { return idle(index) && blocks_[index].wanted == 0; });
  if (victim == by_use_.end()) victim = std::ranges::find_if(by_use_, idle);
  if (victim == by_use_.end()) return false;
  leave(*victim);
  return true;
}

void PoolEngine::hold(Index index, Chunk chunk) {
  Block& b = blocks_[index];
  driver_.map(at(index), granule_, chunk);
  b.chunk = chunk;
  b.state = State::resident;
  b.queued = false;
  b.place = by_use_.insert(by_use_.end(), index);
}

// ---------------------------------------------------------------- blocks

void PoolEngine::use(Index index) {
  Block& b = blocks_[index];
  join();
  b.used = clock_.load(std::memory_order_relaxed);
  if (b.state == State::resident && b.live > 0) by_use_.splice(by_use_.end(), by_use_, b.place);
}

// A stream that is new here begins behind all that was launched on others until now: what is known
// of events is known for those.
void PoolEngine::join() {
  const Stream stream = here();
  if (std::ranges::find(computing_, stream) != computing_.end()) return;
  Block nothing;
  Event event = last_use(nothing);
  driver_.wait(stream, event);
  give_event(event);
  computing_.push_back(stream);
}

bool PoolEngine::fetch(Index index, bool now, Guard& guard) {
  Chunk chunk;
  if (!find_chunk(chunk, now, guard)) return false;
  Block& b = blocks_[index];
  if (b.state != State::absent) {  // while the lock was released
    free_.push_back(chunk);
    return true;
  }
  hold(index, chunk);
  driver_.copy(reinterpret_cast<void*>(at(index)), b.slot, granule_, in_);
  b.event = take_event();
  driver_.record(b.event, in_);
  counters_.promoted_bytes += granule_;
  return true;
}

// For a tensor that begins.
bool PoolEngine::make_resident(Index index, Guard& guard) {
  Block& b = blocks_[index];
  while (b.state != State::resident) {
    Chunk chunk;
    if (b.state == State::leaving) {
      recall(index);
    } else if (b.state == State::absent) {
      if (!fetch(index, true, guard)) return false;
    } else if (!find_chunk(chunk, true, guard)) {
      return false;
    } else if (b.state == State::empty) {
      hold(index, chunk);
    } else {  // while the lock was released
      free_.push_back(chunk);
    }
  }
  await_event(b);  // the copy in of what lives beside it; the last use of what died
  if (b.dead) by_use_.splice(by_use_.end(), dead_, b.place);
  b.dead = false;
  return true;
}

// The copy out waits for all that was launched until now, and for its copy in.
void PoolEngine::leave(Index index) {
  Block& b = blocks_[index];
  Departure departure{index, ++tickets_, nullptr, nullptr};
  if (b.live == 0) {
    departure.event = b.event;
    (b.dead ? dead_ : by_use_).erase(b.place);
    b.dead = false;
  } else {
    if (b.slot == nullptr) b.slot = take_slot();  // it may be refused: nothing has changed yet
    departure.event = last_use(b);
    driver_.wait(out_, departure.event);
    driver_.copy(b.slot, reinterpret_cast<void*>(at(index)), granule_, out_);
    driver_.record(departure.event, out_);
    departure.slot = b.slot;
    counters_.demoted_bytes += granule_;
    by_use_.erase(b.place);
  }
  b.state = State::leaving;
  b.ticket = departure.ticket;
  b.event = departure.event;
  departures_.push_back(departure);
  ++under_way_;
  work_.notify_one();
}

// Its chunk is still in place. Who writes there now spoils the copy, which nobody will read.
// Whoever computes waits for what the departure waits for: its copy in, or, of what died, its last
// use.
void PoolEngine::recall(Index index) {
  Block& b = blocks_[index];
  driver_.wait(join_, b.event);  // the departure's, as is the slot
  b.event = take_event();
  driver_.record(b.event, join_);
  b.slot = nullptr;
  b.ticket = 0;
  b.state = State::resident;
  b.place = by_use_.insert(by_use_.end(), index);
}

// A tensor ends. What still lives beside it leaves if no plan wants that, and what begins in its
// place waits for its kernels, on whatever stream they are.
void PoolEngine::end(Index index, bool wanted) {
  Block& b = blocks_[index];
  b.wanted -= wanted ? 1 : 0;
  if (--b.live == 0) return die(index);
  if (b.state != State::resident) return;
  if (computing_.size() > 1) b.event = last_use(b);
  if (b.wanted == 0) leave(index);
}

// Nothing lives in it any more.
void PoolEngine::die(Index index) {
  Block& b = blocks_[index];
  b.queued = false;
  if (b.state == State::resident) {
    // Where a copy in still reads the slot, what it brings is of no use any more.
    if (b.slot != nullptr) slots_.push_back(std::exchange(b.slot, nullptr));
    b.event = last_use(b);
    b.dead = true;
    dead_.splice(dead_.end(), by_use_, b.place);
  } else if (b.state == State::absent) {
    slots_.push_back(std::exchange(b.slot, nullptr));
    b.state = State::empty;
  }
}

void PoolEngine::fetch_queued(Guard& guard) {
  while (!queued_.empty() && waiting_ == 0) {  // demand goes first
    const Index index = queued_.front();
    const Block& b = blocks_[index];
    if (b.queued && b.state == State::absent && !fetch(index, false, guard)) return;
    queued_.pop_front();
  }
}

// ---------------------------------------------------------------- the helper thread

void PoolEngine::helper() {
  Guard guard(lock_);
  while (true) {
    work_.wait(guard, [this] { return over_ || !departures_.empty(); });
    if (over_) return;
    Departure departure = departures_.front();
    departures_.pop_front();
    guard.unlock();
    driver_.synchronize(departure.event);
    guard.lock();
    gone(departure);
    give_event(departure.event);
    fetch_queued(guard);
    freed_.notify_all();
  }
}

void PoolEngine::gone(const Departure& departure) {
  --under_way_;
  Block& b = blocks_[departure.index];
  if (b.ticket != departure.ticket) {
    if (departure.slot != nullptr) slots_.push_back(departure.slot);
    return;
  }
  b.ticket = 0;
  b.event = nullptr;
  driver_.unmap(at(departure.index), granule_);
  free_.push_back(b.chunk);
  b.state = b.live > 0 ? State::absent : State::empty;
  if (b.live == 0 && b.slot != nullptr) slots_.push_back(std::exchange(b.slot, nullptr));
}

// ---------------------------------------------------------------- events and slots

// What this thread computes on waits for what the block's event stands for.
void PoolEngine::await_event(Block& b) {
  if (b.event == nullptr) return;
  driver_.wait(here(), b.event);
  if (!b.dead && driver_.done(b.event)) give_event(b.event);
}

// Happens when all that was launched until now, and the block's copy in, are over.
Event PoolEngine::last_use(Block& b) {
  Event event = take_event();
  for (Stream stream : computing_) {
    driver_.record(event, stream);
    driver_.wait(join_, event);
  }
  if (b.event != nullptr) {
    driver_.wait(join_, b.event);
    give_event(b.event);
  }
  driver_.record(event, join_);
  return event;
}

Event PoolEngine::take_event() {
  if (events_.empty()) return driver_.make_event();
  const Event event = events_.back();
  events_.pop_back();
  return event;
}

void PoolEngine::give_event(Event& event) { events_.push_back(std::exchange(event, nullptr)); }

void* PoolEngine::take_slot() {
  if (slots_.empty()) {
    auto* slab = static_cast<char*>(driver_.pin(kSlotsASlab * granule_));
    slabs_.push_back(slab);
    for (std::uint64_t i = 0; i < kSlotsASlab; ++i) slots_.push_back(slab + i * granule_);
  }
  void* slot = slots_.back();
  slots_.pop_back();
  return slot;
}

}  // namespace sentinel::gpu
