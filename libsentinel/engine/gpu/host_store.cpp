#include "engine/gpu/host_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/quiet_thread.h"
#include "base/units.h"
#include "engine/gpu/cufile.h"
#include "engine/gpu/file_trial.h"

namespace sentinel::gpu {
namespace {

constexpr std::uint64_t kSlab = 16;  // granules that are pinned together
constexpr int kOutOfMemory = 2;      // CUDA_ERROR_OUT_OF_MEMORY

std::uint64_t ahead(const HostOptions& options, std::uint64_t granule) {
  return std::min<std::uint64_t>(options.depth, options.bytes / granule / 4);
}

}  // namespace

std::uint64_t HostStore::capacity(const HostOptions& options, std::uint64_t granule) {
  return options.bytes - ahead(options, granule) * granule;
}

struct HostStore::Place {
  void* memory = nullptr;
  std::int64_t slot = -1;  // of the file: has the contents, unless they are on their way there
  std::uint32_t owner = 0;
  enum class Way : std::uint8_t { none, down, up } way = Way::none;
  bool resting = false, queued = false;
  bool kept = false;       // somebody waits for it: it may not go down
  bool staged = false;     // came up for a plan: goes down only where something has to leave
  bool used = false;       // it is copied from
  bool sinks = false;      // it belongs below
  bool ended = false;      // given back while it was on its way
  void* device = nullptr;  // memory of the device that it is written from, or fills
  std::list<Place*>::iterator at;
};

HostStore::HostStore(Driver& driver, std::mutex& mutex, std::uint64_t granule,
                     const HostOptions& options, Events events)
    : driver_(driver),
      mutex_(mutex),
      granule_(granule),
      most_(options.bytes == 0 ? ~0ull : options.bytes / granule),
      events_(std::move(events)) {
  if (options.bytes == 0) return;
  if (most_ < kLeast)
    throw Error(
        fmt::format("{} of the host's memory are too little between a GPU and a file; give "
                    "it {} or more",
                    print_bytes(options.bytes), print_bytes(kLeast * granule)));
  ahead_ = ahead(options, granule);
  file_ = std::make_unique<SlowFile>(SlowFile::Options{
      .directory = options.directory,
      .frame_bytes = granule,
      .allow_memory = options.allow_memory,
      .named = !options.cufile.empty(),
      .checksums = options.cufile.empty() ? options.checksums : ChecksumLevel::off});
  if (!options.cufile.empty()) device_ = driver_.open_files(file_->files(), options.cufile);
  file_->forget_names();  // where the call throws, file_ does
  if (device_) try_files(driver_, *device_, *file_, granule);
  executor_ = make_executor(*file_, {.backend = options.io,
                                     .depth = options.depth,
                                     .frame_bytes = granule,
                                     .inject = options.inject,
                                     .device = device_.get()});
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
  try {
    for (void* slab : slabs_) driver_.unpin(slab);
  } catch (const Error&) {  // the driver went first
  }
}

// ---------------------------------------------------------------- what the engine calls

HostStore::Place* HostStore::take() {
  void* memory = find_memory();
  wake();  // memory is kept free ahead of the need
  return memory != nullptr ? new_place(memory) : nullptr;
}

HostStore::Place* HostStore::take_below() {
  return device_ && !ending_ ? new_place(nullptr) : nullptr;
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
  place->sinks = file_ && sinks;
  enter_rest(place);
}

void HostStore::enter_rest(Place* place) {
  place->resting = true;
  place->at = at_rest_.insert(place->sinks ? at_rest_.begin() : at_rest_.end(), place);
  sinking_ += place->sinks;
  wake();
}

void HostStore::sink(Place* place) {
  if (!file_ || !place->resting || place->sinks) return;
  place->sinks = true;
  ++sinking_;
  at_rest_.splice(at_rest_.begin(), at_rest_, place->at);
  wake();
}

bool HostStore::here(const Place* place) const {
  return (device_ && !ending_) || (place->memory != nullptr && place->way != Place::Way::up);
}

void HostStore::write(Place* place, std::uint32_t owner, void* device) {
  place->owner = owner;
  place->device = device;
  reserve_slot(place);
  writes_.push_back(place);
  wake();
}

bool HostStore::take_back(Place* place) {
  if (std::erase(writes_, place) == 0) return false;
  end(place);
  return true;
}

void HostStore::fill(Place* place, void* device, bool now) {
  place->device = device;
  place->queued = true;
  reads_.insert(now ? reads_.begin() : reads_.end(), place);
  wake();
}

void HostStore::hasten(Place* place) {
  if (!place->queued) return;
  std::erase(reads_, place);
  reads_.push_front(place);
}

void HostStore::program_ends() {
  ending_ = true;
  std::erase_if(reads_, [](Place* place) {
    const bool ahead = place->device == nullptr && !place->kept;
    if (ahead) place->queued = false;
    return ahead;
  });
}

void HostStore::read(Place* place, bool now) {
  if (ending_ && !now && !place->kept) return;
  if (place->queued && now && !place->kept) ++awaited_;
  place->kept |= now;
  if (place->resting) {  // it goes down last
    sinking_ -= std::exchange(place->sinks, false);
    at_rest_.splice(at_rest_.end(), at_rest_, place->at);
  }
  if (here(place) || place->way == Place::Way::up) return;
  if (place->queued && now) std::erase(reads_, place);
  if (!place->queued || now) reads_.insert(now ? reads_.begin() : reads_.end(), place);
  if (!std::exchange(place->queued, true)) awaited_ += place->kept;
  wake();
}

void HostStore::forgo(Place* place) {
  if (std::exchange(place->kept, false) && place->queued) --awaited_;
  wake();
}

void HostStore::withdraw(Place* place) {
  if (place->kept) return;
  place->staged = false;
  if (std::exchange(place->queued, false)) std::erase(reads_, place);
}

void HostStore::use(Place* place) {
  if (place->resting) leave_rest(place);
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

void* HostStore::find_memory() {
  if (free_.empty()) return nullptr;
  void* memory = free_.back();
  free_.pop_back();
  return memory;
}

// What is pinned counts at once, so that nobody else pins it.
void HostStore::grow(std::uint64_t granules, Lock& lock) {
  const auto lacking = granules - std::min<std::uint64_t>(granules, free_.size());
  const auto count =
      std::min(std::clamp(round_up(lacking, kSlab), kSlab, 8 * kSlab), most_ - pinned_);
  if (count == 0) return;
  pinned_ += count;
  ++growing_;
  lock.unlock();
  auto* slab = static_cast<char*>(pin(count));
  lock.lock();
  --growing_;
  slabs_.push_back(slab);
  for (std::uint64_t i = count; i-- > 0;) free_.push_back(slab + i * granule_);
  events_.room();
  wake();
}

void* HostStore::pin(std::uint64_t granules) try {
  return driver_.pin(granules * granule_);
} catch (const DriverError& error) {
  if (error.status != kOutOfMemory) throw;
  throw Error(fmt::format(
      "the host has no memory for {} more of what leaves the GPU ({}); {} --host-memory, and a "
      "file in --slow holds the rest",
      print_bytes(granules * granule_), error.what(), file_ ? "give less as" : "limit it with"));
}

void HostStore::free_memory(Place* place) {
  free_.push_back(std::exchange(place->memory, nullptr));
  if (file_) events_.room();
}

// Nothing is on its way any more.
void HostStore::end(Place* place) {
  if (place->resting) leave_rest(place);
  if (place->queued) {
    std::erase(reads_, place);
    awaited_ -= place->kept;
  }
  if (place->slot >= 0) file_->release(place->slot);
  if (place->memory != nullptr) free_memory(place);
  unused_.push_back(place);
  wake();  // what is to be read may have memory now
}

void HostStore::leave_rest(Place* place) {
  at_rest_.erase(place->at);
  place->resting = false;
  sinking_ -= place->sinks;
}

// ---------------------------------------------------------------- the file's thread

void HostStore::wake() {
  if (executor_ && (over_ || !reads_.empty() || !writes_.empty() || sinking_ > 0 || is_short()))
    executor_->wake();
}

void HostStore::run() {
  std::array<Completion, 16> done;
  Lock lock(mutex_);
  try {
    while (!over_) {
      if (!reads_.empty() && !ending_ && lacks(1)) grow(1, lock);
      start();
      lock.unlock();
      const auto count = executor_->wait(done);
      lock.lock();
      for (std::size_t i = 0; i < count; ++i) finished(done[i], lock);
    }
    while (reading_now_ + writing_now_ > 0) {  // they use the memory
      const auto count = executor_->wait(done);
      for (std::size_t i = 0; i < count; ++i) {
        const auto* place = reinterpret_cast<const Place*>(done[i].cookie);
        --(place->way == Place::Way::up ? reading_now_ : writing_now_);
      }
    }
  } catch (const std::exception& error) {
    events_.failed(error);
  }
}

// Some memory is to be free before anybody asks for it.
bool HostStore::is_short() const {
  return free_.size() + (most_ - pinned_) + emptying_ <
         static_cast<std::uint64_t>(wanting_) + awaited_ + ahead_;
}

HostStore::Place* HostStore::next_down() const {
  const bool any = is_short();
  if (!any && sinking_ == 0) return nullptr;
  const bool urgent = wanted();
  const auto next = std::ranges::find_if(at_rest_, [=](const Place* p) {
    return !p->kept && (any || p->sinks) && (urgent || !p->staged);
  });
  return next == at_rest_.end() ? nullptr : *next;
}

// Reads first, of what a plan wants only into memory to spare; writes take half of the transfers at
// most, so that reads do not wait for them.
void HostStore::start() {
  while (!reads_.empty() && reading_now_ + writing_now_ < executor_->depth()) {
    Place* place = reads_.front();
    if (place->device == nullptr) {
      if (!place->kept && free_.size() + (most_ - pinned_) <= ahead_ / 2) break;
      if ((place->memory = find_memory()) == nullptr) break;
    }
    reads_.pop_front();
    place->queued = false;
    if (place->device != nullptr) {
      transfer(place, false);
      continue;
    }
    place->staged = !place->kept;
    if (place->kept && --awaited_ == 0) events_.room();  // for others again
    transfer(place, false);
  }
  start_writes();
}

// Of writes, the device's own go first: its memory is needed for something else.
void HostStore::start_writes() {
  const auto most_writes = std::max<std::size_t>(1, executor_->depth() / 2);
  while (writing_now_ < most_writes && reading_now_ + writing_now_ < executor_->depth()) {
    if (!writes_.empty()) {
      transfer(writes_.front(), true);
      writes_.pop_front();
      continue;
    }
    Place* place = next_down();
    if (place == nullptr) return;
    go_down(place);
  }
}

// What came back and was not used since is in the file still.
void HostStore::go_down(Place* place) {
  leave_rest(place);
  place->sinks = place->staged = false;
  if (place->slot >= 0) {
    free_memory(place);
    return wake();  // for what is to be read
  }
  reserve_slot(place);
  ++emptying_;
  transfer(place, true);
}

void HostStore::reserve_slot(Place* place) {
  place->slot = file_->reserve();
  if (place->slot < 0)
    throw Error(
        "no space for what neither the GPU nor the host's memory holds; free some, give "
        "--host-memory more, or name another directory with --slow",
        static_cast<int>(-place->slot));
}

void HostStore::transfer(Place* place, bool down) {
  place->way = down ? Place::Way::down : Place::Way::up;
  ++(down ? writing_now_ : reading_now_);
  (down ? writing_ : reading_).started();
  const bool device = place->device != nullptr;
  if (const int code = executor_->submit({.write = down,
                                          .slot = place->slot,
                                          .frame = device ? place->device : place->memory,
                                          .cookie = reinterpret_cast<std::uint64_t>(place),
                                          .device = device});
      code != 0)
    throw Error(down ? "could not start a write" : "could not start a read", -code);
}

void HostStore::finished(const Completion& done, Lock& lock) {
  auto* place = reinterpret_cast<Place*>(done.cookie);
  const bool up = place->way == Place::Way::up;
  --(up ? reading_now_ : writing_now_);
  (up ? reading_ : writing_).finished(1, granule_);
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
  if (!up) --emptying_;
  if (place->ended) return end(place);
  if (up) {
    enter_rest(place);
    return events_.came(place->owner, lock);
  }
  if (!place->used && !place->kept) return free_memory(place);
  if (!place->used) enter_rest(place);  // asked for while it was written
}

}  // namespace sentinel::gpu
