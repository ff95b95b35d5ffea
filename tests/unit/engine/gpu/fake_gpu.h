// A GPU that does nothing before somebody waits: then its streams go on in an order that a seed
// chooses among those that their events allow. Its memory is real, so that what is used too early
// or too late is found wrong; an access to addresses with nothing behind them is told.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/gpu/cuda_driver.h"
#include "unit/engine/gpu/fake_files.h"

namespace sentinel::gpu {

class FakeGpu : public Driver {
 public:
  static constexpr std::uint64_t kUnit = 4096;

  explicit FakeGpu(unsigned seed, std::uint64_t chunks, std::uint64_t unit = kUnit)
      : random_(seed),
        capacity_(chunks),
        unit_(unit),
        file_(memfd_create("fake-gpu", MFD_CLOEXEC)) {
    streams_[nullptr];
  }
  ~FakeGpu() override { close(file_); }

  // ------------------------------------------------------------ what tests ask and say

  void launch(Stream stream, std::vector<std::pair<std::uintptr_t, std::uint64_t>> uses,
              std::function<void()> kernel) {
    push(stream, {[this, uses = std::move(uses), kernel = std::move(kernel)] {
           for (const auto& [address, bytes] : uses)
             if (!mapped(address, bytes)) return complain("a kernel uses memory that is not there");
           for (const auto& [address, bytes] : uses) faults_ += lie(address, bytes, true);
           kernel();
         }});
  }
  void finish() {
    const std::lock_guard guard(lock_);
    while (advance()) {
    }
  }
  // From now on who waits for the device goes on when all that it was given is over.
  void wake_late() {
    const std::lock_guard guard(lock_);
    wakes_late_ = true;
  }
  // Who waits for the device begins with that, and goes no further until it is told again.
  void hold(bool hold) {
    const std::lock_guard guard(hold_lock_);
    held_ = hold;
    go_.notify_all();
  }
  bool is_waited_for() const { return waiting_ > 0; }
  // From now on a stream's queue holds so many commands: whoever gives it one more waits until the
  // device has done the oldest, and is noted.
  void hold_at_most(std::size_t commands) {
    const std::lock_guard guard(lock_);
    queue_ = commands;
  }
  // Streams that were full, and by whom one was found so.
  std::set<std::pair<Stream, std::thread::id>> found_full() const {
    const std::lock_guard guard(lock_);
    return found_full_;
  }
  std::size_t queued(Stream stream) const {
    const std::lock_guard guard(lock_);
    return streams_.at(stream).size();
  }
  // Of the calls of this name, all that follow are refused.
  void refuse(std::string call) {
    const std::lock_guard guard(lock_);
    refused_ = std::move(call);
  }
  // Events that were recorded, and waits of a stream for one, until now.
  std::uint64_t recorded() const {
    const std::lock_guard guard(lock_);
    return recorded_;
  }
  std::uint64_t waits(Stream stream) const {
    const std::lock_guard guard(lock_);
    const auto at = waits_.find(stream);
    return at == waits_.end() ? 0 : at->second;
  }
  std::uint64_t times_mapped(std::uintptr_t address) const {
    const std::lock_guard guard(lock_);
    const auto at = times_mapped_.find(address);
    return at == times_mapped_.end() ? 0 : at->second;
  }
  // So much of it is another program's from now on.
  void others_take(std::uint64_t chunks) {
    const std::lock_guard guard(lock_);
    others_ = chunks;
  }
  std::uint64_t most_chunks() const {
    const std::lock_guard guard(lock_);
    return most_;
  }
  std::size_t left() const {  // beside the default stream
    const std::lock_guard guard(lock_);
    return chunks_.size() + mapped_.size() + streams_.size() - 1 + events_;
  }
  std::vector<std::string> complaints() const {
    const std::lock_guard guard(lock_);
    return complaints_;
  }
  bool was_waited_for_by(std::thread::id id) const {
    const std::lock_guard guard(lock_);
    return waited_.contains(id);
  }

  // ------------------------------------------------------------ Driver

  std::uint64_t granularity() override { return unit_; }
  std::uint64_t free_bytes() override {
    const std::lock_guard guard(lock_);
    return (capacity_ - others_ - chunks_.size()) * unit_;
  }
  std::uintptr_t reserve(std::uint64_t bytes) override {
    const std::lock_guard guard(lock_);
    called("cuMemAddressReserve");
    void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    arena_ = reinterpret_cast<std::uintptr_t>(at);
    arena_bytes_ = bytes;
    return arena_;
  }
  void unreserve(std::uintptr_t address, std::uint64_t bytes) override {
    munmap(reinterpret_cast<void*>(address), bytes);
  }
  std::optional<Chunk> create(std::uint64_t bytes) override {
    const std::lock_guard guard(lock_);
    called("cuMemCreate");
    if (bytes % unit_ != 0) complain("a chunk that the device has no granularity for");
    if (chunks_.size() + others_ >= capacity_) return std::nullopt;
    const Chunk chunk = next_chunk_;  // where it lies, in units
    next_chunk_ += bytes / unit_;
    if (ftruncate(file_, static_cast<off_t>(next_chunk_ * unit_)) != 0) std::abort();
    chunks_.insert(chunk);
    most_ = std::max<std::uint64_t>(most_, chunks_.size());
    return chunk;
  }
  void destroy(Chunk chunk) override {
    const std::lock_guard guard(lock_);
    if (chunks_.erase(chunk) != 1) complain("a chunk is destroyed twice");
  }
  void map_all(std::uintptr_t address, std::uint64_t bytes,
               const std::vector<Chunk>& chunks) override {
    ++mappings_;
    Driver::map_all(address, bytes, chunks);
  }
  std::uint64_t mappings() const { return mappings_; }  // of neighbours together, until now
  std::uint64_t unmappings() const { return unmappings_; }
  void map(std::uintptr_t address, std::uint64_t bytes, Chunk chunk) override {
    const std::lock_guard guard(lock_);
    called("cuMemMap");
    ++times_mapped_[address];
    if (!mapped_.emplace(address, Mapping{chunk, bytes}).second) complain("mapped twice");
    for (const auto& [other, its] : mapped_)
      if (other != address && its.chunk == chunk) complain("a chunk lies in two places");
    mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
         file_, static_cast<off_t>(chunk * unit_));
  }
  void unmap(std::uintptr_t address, std::uint64_t bytes) override {
    const std::lock_guard guard(lock_);
    called("cuMemUnmap");
    ++unmappings_;
    const auto end = address + bytes;
    for (auto next = address; next < end;) {
      const auto at = mapped_.find(next);
      if (at == mapped_.end()) return complain("unmapped what is not there");
      next += at->second.bytes;
      if (next > end) return complain("unmapped a part of a mapping");
      mapped_.erase(at);
    }
    mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  std::uintptr_t manage(std::uint64_t bytes) override {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const std::lock_guard guard(lock_);
    managed_[reinterpret_cast<std::uintptr_t>(at)] = bytes;
    return reinterpret_cast<std::uintptr_t>(at);
  }
  void unmanage(std::uintptr_t address) override {
    const std::lock_guard guard(lock_);
    munmap(reinterpret_cast<void*>(address), managed_.at(address));
    managed_.erase(address);
  }
  void prefetch(std::uintptr_t address, std::uint64_t bytes, bool to_device,
                Stream stream) override {
    push(stream, {[=, this] {
           if (!mapped(address, bytes)) complain("a prefetch of what is not managed");
           lie(address, bytes, to_device);
           (to_device ? prefetched_in_ : prefetched_out_) += bytes;
         }});
  }
  std::uint64_t prefetched_in() const { return prefetched_in_; }
  std::uint64_t prefetched_out() const { return prefetched_out_; }
  // Units of managed memory that kernels used and that lay on the host.
  std::uint64_t faults_of_kernels() const {
    const std::lock_guard guard(lock_);
    return faults_;
  }
  // What it moves has to be there until it has been moved.
  std::unique_ptr<DeviceFiles> open_files(const std::vector<int>& descriptors,
                                          const std::string&) override {
    struct Files final : DeviceFiles {
      std::int64_t read(std::size_t file, void* device, std::uint64_t bytes,
                        std::uint64_t offset) noexcept override {
        gpu->begin_transfer();
        gpu->in_place(device, bytes);
        if (gpu->files_closed_) return -kClosing;
        const auto n = pread(descriptors[file], device, bytes, static_cast<off_t>(offset));
        gpu->moved(device, bytes, gpu->filled_);
        return n;
      }
      std::int64_t write(std::size_t file, const void* device, std::uint64_t bytes,
                         std::uint64_t offset) noexcept override {
        gpu->begin_transfer();
        gpu->in_place(device, bytes);
        if (gpu->files_closed_) return -kClosing;
        const auto n = pwrite(descriptors[file], device, bytes, static_cast<off_t>(offset));
        gpu->moved(device, bytes, gpu->written_);
        return n;
      }
      FakeGpu* gpu = nullptr;
      std::vector<int> descriptors;
    };
    for (const int descriptor : descriptors)
      if (fake::refusal(descriptor) != 0)
        throw Error("cuFileHandleRegister: a file without a name");
    auto files = std::make_unique<Files>();
    files->gpu = this;
    files->descriptors = descriptors;
    return files;
  }
  // Transfers of files begin, and go no further until it is told again.
  void hold_files(bool hold) {
    const std::lock_guard guard(hold_lock_);
    files_held_ = hold;
    go_.notify_all();
  }
  std::uint64_t files_begun() const { return files_begun_; }
  // From now on they are refused, as by a library whose exit handler has run.
  void close_files() { files_closed_ = true; }
  // From now on each is complained about.
  void end_files() { files_over_ = true; }
  // What was done until now was for the start.
  void has_started() {
    const std::lock_guard guard(lock_);
    waited_.clear();
    filled_ = written_ = files_begun_ = 0;
  }
  std::uint64_t filled_from_files() const { return filled_; }
  std::uint64_t written_to_files() const { return written_; }
  void* pin(std::uint64_t bytes) override {
    const std::lock_guard guard(lock_);
    called("cuMemHostAlloc");
    return std::aligned_alloc(4096, bytes);
  }
  void unpin(void* memory) override { std::free(memory); }

  Stream make_stream() override {
    const std::lock_guard guard(lock_);
    const auto stream = reinterpret_cast<Stream>(++next_stream_);
    streams_[stream];
    return stream;
  }
  void destroy_stream(Stream stream) override {
    const std::lock_guard guard(lock_);
    if (!streams_[stream].empty()) complain("a stream is destroyed before its end");
    streams_.erase(stream);
  }
  void copy(void* to, const void* from, std::uint64_t bytes, Stream stream) override {
    {
      const std::lock_guard guard(lock_);
      called("cuMemcpyAsync");
    }
    push(stream, {[=, this] {
           for (const void* end : {static_cast<const void*>(to), from})
             if (of_device(end) && !mapped(reinterpret_cast<std::uintptr_t>(end), bytes))
               return complain("a copy uses memory that is not there");
           std::memcpy(to, from, bytes);
         }});
  }
  Event make_event() override {
    const std::lock_guard guard(lock_);
    ++events_;
    return new Mark;
  }
  void destroy_event(Event event) override {
    const std::lock_guard guard(lock_);
    --events_;
    delete static_cast<Mark*>(event);
  }
  void record(Event event, Stream stream) override {
    const std::lock_guard guard(lock_);
    called("cuEventRecord");
    ++recorded_;
    auto* mark = static_cast<Mark*>(event);
    mark->pending.insert(++mark->recorded);
    of(stream).push_back({[mark, number = mark->recorded] { mark->pending.erase(number); }});
  }
  void wait(Stream stream, Event event) override {
    const std::lock_guard guard(lock_);
    called("cuStreamWaitEvent");
    ++waits_[stream];
    const auto* mark = static_cast<Mark*>(event);
    of(stream).push_back(
        {[] {}, [mark, number = mark->recorded] { return mark->happened(number); }});
  }
  bool done(Event event) override {
    const std::lock_guard guard(lock_);
    if (random_() % 2 == 0) advance();
    const auto* mark = static_cast<Mark*>(event);
    return mark->happened(mark->recorded);
  }
  void synchronize(Event event) override {
    ++waiting_;
    {
      std::unique_lock guard(hold_lock_);
      go_.wait(guard, [this] { return !held_; });
    }
    wait_for(event);
    --waiting_;
  }

 private:
  void wait_for(Event event) {
    const std::lock_guard guard(lock_);
    called("cuEventSynchronize");
    waited_.insert(std::this_thread::get_id());
    const auto* mark = static_cast<Mark*>(event);
    const auto number = mark->recorded;
    while (!mark->happened(number))
      if (!advance()) {
        complain("what is waited for never happens");
        return;
      }
    while (wakes_late_ && advance()) {
    }
  }

  static constexpr std::int64_t kClosing = 5006;  // CU_FILE_DRIVER_CLOSING
  struct Mapping {
    Chunk chunk;
    std::uint64_t bytes;
  };
  struct Mark {
    std::uint64_t recorded = 0;
    std::set<std::uint64_t> pending;  // who waits, waits for one of these
    bool happened(std::uint64_t number) const { return !pending.contains(number); }
  };
  struct Item {
    std::function<void()> run;
    std::function<bool()> ready = [] { return true; };
  };

  void push(Stream stream, Item item) {
    const std::lock_guard guard(lock_);
    of(stream).push_back(std::move(item));
  }
  std::deque<Item>& of(Stream stream) {
    if (!streams_.contains(stream)) complain("a stream is used after its end");
    auto& items = streams_[stream];
    if (items.size() >= queue_) found_full_.emplace(stream, std::this_thread::get_id());
    while (items.size() >= queue_ && advance()) {
    }
    return items;
  }
  // One item of a stream that can go on; false: there is none.
  bool advance() {
    std::vector<std::deque<Item>*> able;
    for (auto& [stream, items] : streams_)
      if (!items.empty() && items.front().ready()) able.push_back(&items);
    if (able.empty()) return false;
    auto& items = *able[random_() % able.size()];
    const Item item = std::move(items.front());
    items.pop_front();
    item.run();
    return true;
  }
  bool mapped(std::uintptr_t address, std::uint64_t bytes) const {
    for (const auto& [begin, size] : managed_)
      if (address - begin < size) return address + bytes <= begin + size;
    const auto first = arena_ + (address - arena_) / unit_ * unit_;
    for (auto at = first; at < address + bytes; at += unit_)
      if (!mapped_.contains(at)) return false;
    return true;
  }
  // Units of managed memory lie there from now on. How many did not.
  std::uint64_t lie(std::uintptr_t address, std::uint64_t bytes, bool on_device) {
    std::uint64_t moved = 0;
    for (auto at = address / unit_; managed_.size() > 0 && at * unit_ < address + bytes; ++at)
      moved += on_device ? on_host_.erase(at) : on_host_.insert(at).second;
    return moved;
  }
  void begin_transfer() {
    if (files_over_) {
      const std::lock_guard guard(lock_);
      complain("a file's transfer after their end");
    }
    std::unique_lock guard(hold_lock_);
    ++files_begun_;
    go_.wait(guard, [this] { return !files_held_; });
  }
  void in_place(const void* device, std::uint64_t bytes) {
    const std::lock_guard guard(lock_);
    if (!mapped(reinterpret_cast<std::uintptr_t>(device), bytes))
      complain("a file's transfer uses memory that is not there");
  }
  void moved(const void* device, std::uint64_t bytes, std::atomic<std::uint64_t>& sum) {
    in_place(device, bytes);
    sum += bytes;
  }
  // Whether the address is the device's rather than the host's.
  bool of_device(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at - arena_ < arena_bytes_;
  }
  void called(const char* call) {
    if (refused_ == call) throw DriverError(call, 2, "CUDA_ERROR_OUT_OF_MEMORY");
  }
  void complain(std::string what) { complaints_.push_back(std::move(what)); }

  mutable std::mutex lock_;
  std::mt19937 random_;
  const std::uint64_t capacity_, unit_;
  std::uint64_t others_ = 0, most_ = 0, next_chunk_ = 0, next_stream_ = 0, events_ = 0;
  int file_;
  std::uintptr_t arena_ = 0;
  std::uint64_t arena_bytes_ = 0;
  std::map<std::uintptr_t, std::uint64_t> managed_;
  std::set<std::uintptr_t> on_host_;  // units
  std::uint64_t prefetched_in_ = 0, prefetched_out_ = 0, faults_ = 0;
  std::atomic<std::uint64_t> filled_ = 0, written_ = 0;
  std::mutex hold_lock_;
  std::condition_variable go_;
  bool held_ = false, files_held_ = false, wakes_late_ = false;
  std::atomic<int> waiting_ = 0;
  std::atomic<std::uint64_t> mappings_ = 0, unmappings_ = 0;
  std::atomic<bool> files_over_ = false, files_closed_ = false;
  std::atomic<std::uint64_t> files_begun_ = 0;
  std::set<Chunk> chunks_;
  std::map<std::uintptr_t, Mapping> mapped_;
  std::map<std::uintptr_t, std::uint64_t> times_mapped_;
  std::map<Stream, std::deque<Item>> streams_;
  std::uint64_t recorded_ = 0;
  std::map<Stream, std::uint64_t> waits_;
  std::set<std::thread::id> waited_;
  std::size_t queue_ = SIZE_MAX;
  std::set<std::pair<Stream, std::thread::id>> found_full_;
  std::vector<std::string> complaints_;
  std::string refused_;
};

}  // namespace sentinel::gpu
