// Gives places in memory or below, moves rested places down and wanted ones up.
#include "engine/gpu/store/host_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/quiet_thread.h"
#include "base/units.h"
#include "engine/gpu/device/cufile.h"

namespace sentinel::gpu {
namespace {

std::uint64_t ahead(const HostOptions& options, std::uint64_t granule) {
  return std::min<std::uint64_t>(options.depth, options.bytes / granule / 4);
}

}  // namespace

std::uint64_t HostStore::capacity(const HostOptions& options, std::uint64_t granule) {
  return options.bytes - ahead(options, granule) * granule;
}

HostStore::HostStore(Driver& driver, std::mutex& mutex, std::uint64_t granule,
                     const HostOptions& options, Events events)
    : mutex_(mutex),
      events_(std::move(events)),
      memory_(driver, granule, options.bytes == 0 ? ~0ull : options.bytes / granule),
      transfers_(granule) {
  if (options.bytes == 0) return;
  if (memory_.most() < kLeast)
    throw Error(
        fmt::format("{} of the host's memory are too little between a GPU and a file; give "
                    "it {} or more",
                    print_bytes(options.bytes), print_bytes(kLeast * granule)));
  ahead_ = ahead(options, granule);
  transfers_.open(driver, options);
  thread_ = quiet_thread([this] { run(); });
}

void HostStore::stop() {
  if (!thread_.joinable()) return;
  {
    const Lock lock(mutex_);
    over_ = true;
    wake();
  }
  thread_.join();
}

HostStore::~HostStore() {
  stop();
  memory_.unpin();
}

// ---------------------------------------------------------------- what the engine calls

HostStore::Place* HostStore::take() {
  void* memory = memory_.take();
  wake();  // memory is kept free ahead of the need
  return memory != nullptr ? new_place(memory) : nullptr;
}

HostStore::Place* HostStore::take_below() {
  return transfers_.by_device() && !ending_ ? new_place(nullptr) : nullptr;
}

HostStore::Place* HostStore::new_place(void* memory) {
  if (unused_.empty()) {
    places_.push_back(std::make_unique<Place>());
    unused_.push_back(places_.back().get());
  }
  Place* place = unused_.back();
  unused_.pop_back();
  *place = {.memory = memory};
  return place;
}

void HostStore::want(int change) {
  wanting_ += change;
  wake();
}

void* HostStore::memory(const Place* place) const { return place->memory; }

void HostStore::rest(Place* place, std::uint32_t owner, bool sinks) {
  place->owner = owner;
  place->sinks = limited() && sinks;
  enter_rest(place);
}

void HostStore::enter_rest(Place* place) {
  rest_.enter(place);
  wake();
}

void HostStore::sink(Place* place) {
  if (!limited() || !place->resting || place->sinks) return;
  rest_.sink(place);
  wake();
}

bool HostStore::here(const Place* place) const {
  return (transfers_.by_device() && !ending_) ||
         (place->memory != nullptr && place->way != Place::Way::up);
}

void HostStore::write(Place* place, std::uint32_t owner, void* device) {
  place->owner = owner;
  place->device = device;
  transfers_.reserve_slot(place);
  queue_.write(place);
  wake();
}

bool HostStore::take_back(Place* place) {
  if (!queue_.take_back(place)) return false;
  end(place);
  return true;
}

void HostStore::fill(Place* place, void* device, bool now) {
  queue_.fill(place, device, now);
  wake();
}

void HostStore::hasten(Place* place) { queue_.hasten(place); }

void HostStore::program_ends() {
  ending_ = true;
  queue_.drop_ahead();
}

void HostStore::read(Place* place, bool now) {
  if (ending_ && !now && !place->kept) return;
  queue_.keep(place, now);
  if (place->resting) rest_.spare(place);
  if (here(place) || place->way == Place::Way::up) return;
  queue_.read(place, now);
  wake();
}

void HostStore::forgo(Place* place) {
  queue_.forgo(place);
  wake();
}

void HostStore::withdraw(Place* place) {
  if (!place->kept) queue_.withdraw(place);
}

void HostStore::use(Place* place) {
  if (place->resting) rest_.leave(place);
  place->kept = place->staged = false;
  place->used = true;
}

void HostStore::give(Place* place) {
  if (place->way == Place::Way::none)
    end(place);
  else
    place->ended = true;
}

// ---------------------------------------------------------------- memory

void HostStore::grow(std::uint64_t granules, Lock& lock) {
  if (!memory_.grow(granules, lock)) return;
  events_.room();
  wake();
}

void HostStore::free_memory(Place* place) {
  memory_.give(std::exchange(place->memory, nullptr));
  if (limited()) events_.room();
}

// Nothing is on its way any more.
void HostStore::end(Place* place) {
  if (place->resting) rest_.leave(place);
  queue_.forget(place);
  transfers_.release_slot(place);
  if (place->memory != nullptr) free_memory(place);
  unused_.push_back(place);
  wake();  // what is to be read may have memory now
}

// ---------------------------------------------------------------- the file's thread

void HostStore::wake() {
  if (limited() && (over_ || queue_.reads() || queue_.writes() || rest_.sinking() || is_short()))
    transfers_.wake();
}

void HostStore::run() {
  std::array<Completion, 16> done;
  Lock lock(mutex_);
  try {
    while (!over_) {
      if (queue_.reads() && !ending_ && lacks(1)) grow(1, lock);
      start();
      lock.unlock();
      const auto count = transfers_.wait(done);
      lock.lock();
      for (std::size_t i = 0; i < count; ++i) finished(done[i], lock);
    }
    transfers_.await_rest();
  } catch (const std::exception& error) {
    events_.failed(error);
  }
}

// Some memory is to be free before anybody asks for it.
bool HostStore::is_short() const {
  return memory_.to_be_had() + transfers_.emptying() <
         static_cast<std::uint64_t>(wanting_) + queue_.awaited() + ahead_;
}

// Reads first, of what a plan wants only into memory to spare.
void HostStore::start() {
  while (queue_.reads() && transfers_.has_room()) {
    Place* place = queue_.first_read();
    if (place->device == nullptr) {
      if (!place->kept && memory_.to_be_had() <= ahead_ / 2) break;
      if ((place->memory = memory_.take()) == nullptr) break;
    }
    queue_.take_read();
    if (place->device != nullptr) {
      transfers_.start(place, false);
      continue;
    }
    place->staged = !place->kept;
    if (queue_.was_last_awaited(place)) events_.room();  // for others again
    transfers_.start(place, false);
  }
  start_writes();
}

// Of writes, the device's own go first: its memory is needed for something else.
void HostStore::start_writes() {
  while (transfers_.has_room_to_write()) {
    if (queue_.writes()) {
      transfers_.start(queue_.take_write(), true);
      continue;
    }
    Place* place = rest_.next(is_short(), wanted());
    if (place == nullptr) return;
    go_down(place);
  }
}

// What came back and was not used since is in the file still.
void HostStore::go_down(Place* place) {
  rest_.leave(place);
  place->sinks = place->staged = false;
  if (place->slot >= 0) {
    free_memory(place);
    return wake();  // for what is to be read
  }
  transfers_.reserve_slot(place);
  transfers_.start(place, true);
}

void HostStore::finished(const Completion& done, Lock& lock) {
  auto* place = reinterpret_cast<Place*>(done.cookie);
  const bool up = place->way == Place::Way::up;
  transfers_.ended(place);
  const bool device = std::exchange(place->device, nullptr) != nullptr;
  if (device && ending_ && is_closing(done.error)) {  // it went first: so does the process
    over_ = true;
    return events_.ended();
  }
  if (done.error != 0)
    throw file_error(fmt::format("{}{}", device ? up ? "cuFileRead: " : "cuFileWrite: " : "",
                                 up ? "could not read back what lay in the file of the slow tier"
                                    : "could not write to the file of the slow tier"),
                     done.error);
  place->way = Place::Way::none;
  if (device) return (up ? events_.filled : events_.written)(place->owner, lock);
  if (!up) transfers_.has_emptied();
  if (place->ended) return end(place);
  if (up) {
    enter_rest(place);
    return events_.came(place->owner, lock);
  }
  if (!place->used && !place->kept) return free_memory(place);
  if (!place->used) enter_rest(place);  // asked for while it was written
}

}  // namespace sentinel::gpu
