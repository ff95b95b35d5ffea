// Stands for the driver: maps and unmaps by advice and prefetches on one managed range.
#include "engine/gpu/managed_driver.h"

#include <sys/mman.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <set>

namespace sentinel::gpu {
namespace {

class ManagedDriver final : public Driver {
 public:
  explicit ManagedDriver(std::unique_ptr<Driver> device)
      : device_(std::move(device)), left_(device_->free_bytes()) {}

  std::uint64_t granularity() override { return device_->granularity(); }
  std::uint64_t free_bytes() override { return device_->free_bytes(); }

  std::uintptr_t reserve(std::uint64_t bytes) override {
    const std::lock_guard guard(lock_);
    if (bytes > left_)
      throw Error("managed memory beyond what the device has free is not asked for", ENOMEM);
    const auto address = device_->manage(bytes);
    device_->prefer_device(address, bytes);
    ranges_[address] = bytes;
    left_ -= bytes;
    return address;
  }
  void unreserve(std::uintptr_t address, std::uint64_t) override {
    const std::lock_guard guard(lock_);
    device_->unmanage(address);
    left_ += ranges_.at(address);
    away_.erase(away_.lower_bound(address), away_.lower_bound(address + ranges_.at(address)));
    ranges_.erase(address);
  }

  void prefetch(std::uintptr_t address, std::uint64_t bytes, bool to_device,
                Stream stream) override {
    device_->prefetch(address, bytes, to_device, stream);
  }
  bool faults() override { return device_->faults(); }
  // What died on the host is born there, and so is what is recalled while it leaves.
  bool bring_back(std::uintptr_t address, std::uint64_t bytes, Stream stream) override {
    {
      const std::lock_guard guard(lock_);
      if (away_.erase(address) == 0) return false;
    }
    device_->prefetch(address, bytes, true, stream);
    return true;
  }
  Pageable pageable() override { return device_->pageable(); }

  // A chunk is a right to that much of the device's memory: the engine counts them.
  std::optional<Chunk> create(std::uint64_t) override {
    const std::lock_guard guard(lock_);
    return ++chunks_;
  }
  void destroy(Chunk) override {}
  // What died may lie on the device on: all of the managed memory has room there.
  void map(std::uintptr_t, std::uint64_t, Chunk) override {}
  void unmap(std::uintptr_t, std::uint64_t) override {}

  // Places on the host are addresses with nothing behind them: a page has one copy.
  void* pin(std::uint64_t bytes) override {
    void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw Error("no addresses are left", errno);
    const std::lock_guard guard(lock_);
    places_[at] = bytes;
    return at;
  }
  void unpin(void* memory) override {
    const std::lock_guard guard(lock_);
    munmap(memory, places_.at(memory));
    places_.erase(memory);
  }

  Stream make_stream() override { return device_->make_stream(); }
  void destroy_stream(Stream stream) override { device_->destroy_stream(stream); }
  void copy(void* to, const void* from, std::uint64_t bytes, Stream stream) override {
    const auto target = reinterpret_cast<std::uintptr_t>(to);
    const auto source = reinterpret_cast<std::uintptr_t>(from);
    const bool in = managed(target), out = managed(source);
    if (in && out) return device_->copy(to, from, bytes, stream);
    {
      const std::lock_guard guard(lock_);
      in ? (void)away_.erase(target) : (void)away_.insert(source);
    }
    device_->prefetch(in ? target : source, bytes, in, stream);
  }

  void transfer(void* to, const void* from, std::uint64_t bytes, Stream stream) override {
    device_->transfer(to, from, bytes, stream);
  }

  Event make_event() override { return device_->make_event(); }
  void destroy_event(Event event) override { device_->destroy_event(event); }
  void record(Event event, Stream stream) override { device_->record(event, stream); }
  void wait(Stream stream, Event event) override { device_->wait(stream, event); }
  bool done(Event event) override { return device_->done(event); }
  void synchronize(Event event) override { device_->synchronize(event); }

 private:
  bool managed(std::uintptr_t address) {
    const std::lock_guard guard(lock_);
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return false;
    --after;
    return address - after->first < after->second;
  }

  std::unique_ptr<Driver> device_;
  std::mutex lock_;  // guards all below
  std::uint64_t left_;
  std::map<std::uintptr_t, std::uint64_t> ranges_;
  std::map<void*, std::uint64_t> places_;
  std::set<std::uintptr_t> away_;  // where what was copied to the host last begins
  Chunk chunks_ = 0;
};

}  // namespace

std::unique_ptr<Driver> make_managed_driver(std::unique_ptr<Driver> device) {
  return std::make_unique<ManagedDriver>(std::move(device));
}

}  // namespace sentinel::gpu
