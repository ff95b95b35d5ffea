// A GPU in virtual time: no memory behind its addresses, no byte copied. Copies, maps, unmaps and
// launches take the times that are stated, on clocks of the simulation's own: one a thread, one a
// stream. So what an engine overlaps, and what waits for what, is computed in milliseconds, the
// same in every run and on every machine.
//
// Of the threads that use it one runs at a time, the one whose clock is behind all others'; calls
// that take long, and waits, are where the next has its turn. Such calls have to be made without
// the engine's lock, or nobody else gets on; what is queued on streams takes its thread's time and
// no turn ends. A queue that is full makes whoever gives it a command wait, under the engine's
// lock: no thread gets on before.
//
// It watches what it is asked for: a kernel whose memory is not mapped, or not copied in yet,
// memory that is unmapped while kernels or copies use it, and copies out of what is still computed
// are complaints.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/gpu/cuda_driver.h"

namespace sentinel::gpu {

struct VirtualCosts {                 // of the host's threads in us
  double map_us = 45, unmap_us = 35;  // a call
  double map_more_us = 0;             // each chunk but the first, of either call
  double create_us = 20, destroy_us = 20;
  double pin_us_per_mib = 300;
  double queue_us = 1;         // a copy, a record, a wait
  double launch_us = 4;        // a kernel, with what the framework does for it
  double wake_us = 10;         // until a thread that waited runs
  double bytes_per_us = 50e3;  // each way
  std::size_t ahead = 1000;    // kernels that a stream's queue holds
  std::size_t queue = 1024;    // commands of any kind that it holds
};

class VirtualGpu final : public Driver {
 public:
  static constexpr std::uint64_t kUnit = 2u << 20;
  explicit VirtualGpu(const VirtualCosts& costs, std::uint64_t bytes = ~0ull)
      : costs_(costs), bytes_(bytes) {
    streams_[nullptr];
  }

  // ------------------------------------------------------------ what simulations ask and say

  // Until so many other threads have come, which wait.
  void await_others(std::size_t count) {
    here();
    std::unique_lock guard(lock_);
    turn_.wait(guard, [&] { return waiting_others() >= count; });
  }
  // From now on threads run as they please and no time passes.
  void release() {
    const std::lock_guard guard(lock_);
    free_ = true;
    turn_.notify_all();
  }
  struct Use {
    std::uintptr_t address;
    std::uint64_t bytes;
  };
  // How long the stream had nothing to compute before.
  double launch(Stream stream, double us, const std::vector<Use>& uses) {
    spend(costs_.launch_us);
    auto& s = streams_[stream];
    if (s.kernels.size() == costs_.ahead) {
      here().now = std::max(here().now, s.kernels.front());
      s.kernels.pop_front();
      pass();
    }
    if (const auto free = room_in(s)) {
      here().now = *free;
      pass();
    }
    const double begin = std::max(s.end, here().now), idle = begin - s.computed;
    s.computed = s.end = begin + us;
    s.kernels.push_back(s.end);
    s.commands.push_back(s.end);
    computed_us_ += us;
    for (const auto& [address, bytes] : uses)
      each_mapping(address, bytes, [&](Mapping& m) {
        if (m.ready > begin) complain("a kernel uses what is on its way in");
        m.used = std::max(m.used, s.end);
      });
    return idle;
  }
  double end_of(Stream stream) { return streams_[stream].end; }
  double now() { return here().now; }
  double computed_us() const { return computed_us_; }
  // Those of the calls that give the stream copies, records and waits.
  std::uint64_t held_up_by(Stream stream) { return streams_[stream].held_up; }
  // Whatever the thread does beside calls of the driver.
  void spend(double us) { here().now += us; }

  struct Counts {
    std::uint64_t maps = 0, unmaps = 0, mapped = 0, copies = 0, events = 0, created = 0;
    std::uint64_t held_up = 0;  // calls that found a queue full
  };
  Counts counts;
  std::vector<std::string> complaints() const { return complaints_; }

  // ------------------------------------------------------------ Driver

  std::uint64_t granularity() override { return kUnit; }
  std::uint64_t free_bytes() override { return bytes_ - made_; }
  std::uintptr_t reserve(std::uint64_t bytes) override {
    here();  // whoever begins runs first
    return std::exchange(next_address_, next_address_ + bytes);
  }
  void unreserve(std::uintptr_t, std::uint64_t) override {}
  std::optional<Chunk> create(std::uint64_t bytes) override {
    if (made_ + bytes > bytes_) return std::nullopt;
    made_ += bytes;
    ++counts.created;
    chunks_[++next_chunk_] = bytes;
    spend(costs_.create_us);
    return next_chunk_;
  }
  void destroy(Chunk chunk) override {
    made_ -= chunks_.at(chunk);
    chunks_.erase(chunk);
    spend(costs_.destroy_us);
  }
  void map(std::uintptr_t address, std::uint64_t bytes, Chunk chunk) override {
    map_all(address, bytes, {chunk});
  }
  void map_all(std::uintptr_t address, std::uint64_t bytes,
               const std::vector<Chunk>& chunks) override {
    ++counts.maps;
    counts.mapped += chunks.size();
    long_call(costs_.map_us + costs_.map_more_us * static_cast<double>(chunks.size() - 1));
    for (std::size_t i = 0; i < chunks.size(); ++i)
      if (!mapped_.emplace(address + i * bytes, Mapping{.bytes = bytes}).second)
        complain("mapped twice");
  }
  void unmap(std::uintptr_t address, std::uint64_t bytes) override { unmap_all(address, bytes, 1); }
  void unmap_all(std::uintptr_t address, std::uint64_t bytes, std::uint64_t count) override {
    ++counts.unmaps;
    each_mapping(address, bytes * count, [&](Mapping& m) {
      if (std::max({m.used, m.read, m.ready}) > here().now) complain("unmapped while in use");
    });
    for (std::uint64_t i = 0; i < count; ++i)
      if (mapped_.erase(address + i * bytes) != 1) complain("unmapped what is not there");
    long_call(costs_.unmap_us + costs_.map_more_us * static_cast<double>(count - 1));
  }
  void* pin(std::uint64_t bytes) override {
    long_call(costs_.pin_us_per_mib * static_cast<double>(bytes >> 20));
    return reinterpret_cast<void*>(std::exchange(next_host_, next_host_ + bytes));
  }
  void unpin(void*) override {}

  Stream make_stream() override {
    const auto stream = reinterpret_cast<Stream>(++next_stream_);
    streams_[stream];
    return stream;
  }
  void destroy_stream(Stream stream) override { streams_.erase(stream); }
  void copy(void* to, const void* from, std::uint64_t bytes, Stream stream) override {
    spend(costs_.queue_us);
    ++counts.copies;
    auto& s = give(stream);
    const double begin = std::max(s.end, here().now);
    s.end = begin + static_cast<double>(bytes) / costs_.bytes_per_us;
    const bool in = of_device(to);
    each_mapping(reinterpret_cast<std::uintptr_t>(in ? to : from), bytes, [&](Mapping& m) {
      if ((in ? std::max(m.used, m.read) : std::max(m.used, m.ready)) > begin)
        complain(in ? "copied into what is in use" : "copied out of what is still computed");
      (in ? m.ready : m.read) = s.end;
    });
    s.commands.push_back(s.end);
  }
  Event make_event() override { return new double(0); }
  void destroy_event(Event event) override { delete static_cast<double*>(event); }
  void record(Event event, Stream stream) override {
    spend(costs_.queue_us);
    ++counts.events;
    auto& s = give(stream);
    *static_cast<double*>(event) = std::max(s.end, here().now);
    s.commands.push_back(std::max(s.end, here().now));
  }
  void wait(Stream stream, Event event) override {
    spend(costs_.queue_us);
    auto& s = give(stream);
    s.end = std::max(s.end, *static_cast<double*>(event));
    s.commands.push_back(s.end);
  }
  bool done(Event event) override { return free_ || *static_cast<double*>(event) <= here().now; }
  void synchronize(Event event) override {
    here().now = std::max(here().now + costs_.queue_us, *static_cast<double*>(event));
    pass();
  }

  void park(std::condition_variable& until, std::unique_lock<std::mutex>& held) override {
    auto& me = here();
    {
      std::unique_lock guard(lock_);
      if (!free_) {
        parked_[&until].push_back(&me);
        me.parked = true;
        give_turn();
        turn_.notify_all();
        held.unlock();
        turn_.wait(guard, [&] { return free_ || running_ == &me; });
        me.parked = false;
        guard.unlock();
        held.lock();
        return;
      }
    }
    until.wait(held);
  }
  void unpark(std::condition_variable& until) override {
    auto& me = here();
    {
      const std::lock_guard guard(lock_);
      for (auto* waiter : parked_[&until]) {
        waiter->parked = false;
        waiter->now = std::max(waiter->now, me.now + costs_.wake_us);
      }
      parked_[&until].clear();
    }
    until.notify_all();
  }

 private:
  struct Thread {
    double now = 0;
    bool parked = false;
  };
  struct Queue {
    double end = 0, computed = 0;  // of what it was given, of its kernels
    std::deque<double> kernels;    // ends of those that may be queued still
    std::deque<double> commands;   // of all
    std::uint64_t held_up = 0;
  };
  struct Mapping {
    std::uint64_t bytes;
    double ready = 0, used = 0, read = 0;  // its copy in, kernels, copy out: when they end
  };

  // The first to come runs; others have their turn when they wait for the first time.
  Thread& here() {
    static thread_local std::map<std::uint64_t, Thread*> mine;  // by device, ever
    auto& thread = mine[number_];
    if (thread != nullptr) return *thread;
    const std::lock_guard guard(lock_);
    threads_.push_back(std::make_unique<Thread>());
    thread = threads_.back().get();
    if (running_ == nullptr) running_ = thread;
    return *thread;
  }
  std::size_t waiting_others() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(threads_, [](const auto& t) { return t->parked; }));
  }
  void give_turn() {
    Thread* next = nullptr;
    for (const auto& thread : threads_)
      if (!thread->parked && (next == nullptr || thread->now < next->now)) next = thread.get();
    if (next != nullptr) running_ = next;
  }
  // When there is room for one more, if that is not now.
  std::optional<double> room_in(Queue& s) {
    while (!s.commands.empty() && s.commands.front() <= here().now) s.commands.pop_front();
    if (s.commands.size() < costs_.queue) return std::nullopt;
    return s.commands[s.commands.size() - costs_.queue];
  }
  // For a command that is given under the engine's lock.
  Queue& give(Stream stream) {
    auto& s = streams_[stream];
    const auto free = room_in(s);
    if (!free || free_) return s;
    ++counts.held_up;
    ++s.held_up;
    const std::lock_guard guard(lock_);
    for (const auto& thread : threads_) thread->now = std::max(thread->now, *free);
    return s;
  }
  // Whoever is behind goes on.
  void pass() {
    auto& me = here();
    std::unique_lock guard(lock_);
    if (free_) return;
    give_turn();
    if (running_ == &me) return;
    turn_.notify_all();
    turn_.wait(guard, [&] { return free_ || running_ == &me; });
  }
  void long_call(double us) {
    spend(us);
    pass();
  }

  template <class F>
  void each_mapping(std::uintptr_t address, std::uint64_t bytes, F&& f) {
    auto at = mapped_.upper_bound(address);
    if (at != mapped_.begin()) --at;
    auto reached = address;
    for (; at != mapped_.end() && at->first < address + bytes; ++at) {
      if (at->first > reached || at->first + at->second.bytes <= address) break;
      f(at->second);
      reached = at->first + at->second.bytes;
    }
    if (reached < address + bytes) complain("memory that is not there is used");
  }
  bool of_device(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) < kHost;
  }
  void complain(const std::string& what) {
    if (!free_ && complaints_.size() < 10) complaints_.push_back(what);
  }

  static constexpr std::uintptr_t kHost = 1ull << 50;
  static inline std::atomic<std::uint64_t> devices_ = 0;
  const std::uint64_t number_ = ++devices_;
  const VirtualCosts costs_;
  const std::uint64_t bytes_;
  std::mutex lock_;  // guards threads and turns; all else is the running thread's
  std::condition_variable turn_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::map<std::condition_variable*, std::vector<Thread*>> parked_;
  Thread* running_ = nullptr;
  bool free_ = false;
  std::uintptr_t next_address_ = 1ull << 44, next_host_ = kHost;
  std::uint64_t made_ = 0, next_chunk_ = 0, next_stream_ = 0;
  double computed_us_ = 0;
  std::map<Chunk, std::uint64_t> chunks_;
  std::map<std::uintptr_t, Mapping> mapped_;
  std::map<Stream, Queue> streams_;
  std::vector<std::string> complaints_;
};

}  // namespace sentinel::gpu
