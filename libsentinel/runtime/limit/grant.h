// A job's side of the broker (docs/design/broker.md): the bytes that this training's tensors may
// hold, as the broker orders. A thread answers it: a smaller grant holds at once, a larger one from
// the next step's border. Without a connection the last grant stays, and the thread connects again.
//
// The grant is a base. In its peaks the training holds more, by leases: wants() says so ahead, and
// nobody waits for the answer. When it wants less the thread gives back what is beyond.
//
// take(), hold(), profiled() and leave() are called with the session's lock held, the rest by any
// thread. A forked child calls nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "broker/wire/message.h"
#include "engine/engine.h"
#include "options/options.h"
#include "runtime/limit/bell.h"
#include "runtime/limit/voice.h"
#include "sentinel/profile.h"

namespace sentinel {

class Grant {
 public:
  // All outlive it. `least`: the smallest budget that works; `peaks`: it is known when they come.
  Grant(const SessionOptions&, Engine&, std::uint64_t least, const Voice&, bool peaks);
  ~Grant();
  Grant(const Grant&) = delete;
  Grant& operator=(const Grant&) = delete;

  bool has_peaks() const { return need_.peaks; }
  bool admitted() const { return is_.admitted; }
  // Waits for the first grant, and holds it; without the session's lock, for it may take long.
  // Throws Error.
  void admit();
  std::uint64_t base() const { return std::min(granted_.base.load(), cap_.load()); }
  // For which to plan; at least the base.
  std::uint64_t bytes() const { return std::min(granted_.most.load(), cap_.load()); }
  // Of the drive's time, the part on which plans may count: others use it, too.
  double drive() const { return granted_.drive_thousandths / 1e3; }
  // At a step's border: a larger grant holds from here on. Whether it is another than before.
  bool take();
  // Beyond the base, from soon on.
  void wants(std::uint64_t bytes) noexcept {
    if (wants_.load(std::memory_order_relaxed) != bytes) ask(bytes);
  }
  // The most that was held since this was asked last, as far as leases hide it from the engine.
  std::uint64_t take_most_held() { return most_held_.exchange(0); }
  // What the plan uses, at most the grant.
  void hold(std::uint64_t bytes);
  // What a step of this training is like: it could use so much, and usually holds so much.
  void profiled(const Profile&, std::uint64_t most, std::uint64_t usual);
  // The same step takes other times by now.
  void drifted(const Profile&);
  // It holds what it needs, and no grant, from now on. The thread tells the broker until that has
  // heard it.
  void leave();

 private:
  class Page;  // in which the broker reads what is held

  Message hello(std::uint64_t holds) const;
  int connect();  // 0, or an errno
  void join();
  void attend() noexcept;
  void rest(std::chrono::milliseconds) const;
  bool attend_once();  // false: the connection is lost
  void obey(const Message&);
  void say_needs();
  bool limit(std::uint64_t bytes);  // with the lock held; false: not yet
  void ask(std::uint64_t bytes) noexcept;
  bool follow_wants();                            // false: not yet
  bool vary(std::uint64_t bytes, double most_s);  // the same
  void lent(const Message&);
  void end_lease();  // with the lock held
  bool farewell();   // false: the broker has not heard it

  const SessionOptions& options_;
  Engine& engine_;
  const Voice& voice_;
  struct {
    std::uint64_t least = 0, usual = 0, most = 0;
    bool peaks = false;
  } need_;
  struct {
    std::atomic<std::uint64_t> base = 0, most = 0;
    std::atomic<std::uint32_t> drive_thousandths = 1000;
  } granted_;
  std::atomic<std::uint64_t> cap_ = ~0ull;  // a share of the peak, once that is known
  std::atomic<std::uint64_t> wants_ = 0, most_held_ = 0;
  struct {
    std::atomic<bool> admitted = false;
    std::atomic<bool> over = false;  // it has left
    std::atomic<bool> ends = false;
  } is_;
  Bell bell_;

  std::mutex admission_;    // held by who waits for it; taken before the other
  std::mutex lock_;         // guards all below; taken after the session's, before the engine's
  std::uint64_t held_ = 0;  // the engine's budget, but for what is leased
  std::pair<std::uint64_t, std::uint64_t> taken_;  // base and bytes at the last border
  struct {
    std::uint64_t bytes = 0;              // that it has
    std::uint64_t number = 0, asked = 0;  // of what it asked last
  } lease_;
  std::string trace_;  // of the step, once it is profiled
  OurFile socket_;
  std::uint32_t sample_ms_ = 1000;
  std::unique_ptr<Page> page_;
  std::thread thread_;
};

}  // namespace sentinel
