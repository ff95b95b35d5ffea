// A job's side of the broker (docs/design/broker.md): the bytes that this training's tensors may
// hold, as the broker orders. A thread answers it: a smaller grant holds at once, a larger one from
// the next step's border. Without a connection the last grant stays, and the thread connects again.
//
// admit(), take(), hold() and profiled() are called with the session's lock held, the figures by
// any thread. A forked child calls nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/descriptor.h"
#include "broker/wire/message.h"
#include "engine/engine.h"
#include "options/options.h"
#include "runtime/limit/voice.h"
#include "sentinel/profile.h"

namespace sentinel {

class Grant {
 public:
  // All outlive it. `least`: the smallest budget that works.
  Grant(const SessionOptions&, Engine&, std::uint64_t least, const Voice&);
  ~Grant();
  Grant(const Grant&) = delete;
  Grant& operator=(const Grant&) = delete;

  bool admitted() const { return thread_.joinable(); }
  // Waits for the first grant, and holds it. Throws Error.
  void admit();
  std::uint64_t bytes() const { return std::min(granted_.load(), cap_.load()); }
  // At a step's border: a larger grant holds from here on. Whether it is another than before.
  bool take();
  // What the plan uses, at most the grant.
  void hold(std::uint64_t bytes);
  // What a step of this training is like: it could use so much.
  void profiled(const Profile&, std::uint64_t most);
  // It holds what it needs, and no grant, from now on.
  void leave();

 private:
  class Page;  // in which the broker reads what is held

  Message hello(std::uint64_t holds) const;
  int connect(std::uint64_t holds);  // 0, or an errno
  void attend() noexcept;
  void rest(std::chrono::milliseconds) const;
  bool attend_once();  // false: the connection is lost
  void obey(const Message&);
  void say_needs();
  bool limit(std::uint64_t bytes);  // with the lock held; false: not yet

  const SessionOptions& options_;
  Engine& engine_;
  const Voice& voice_;
  std::uint64_t least_;
  std::atomic<std::uint64_t> granted_ = 0;
  std::atomic<std::uint64_t> cap_ = ~0ull;  // a share of the peak, once that is known
  std::atomic<bool> over_ = false;

  std::mutex lock_;  // guards all below; taken after the session's, before the engine's
  std::uint64_t held_ = 0, taken_ = 0;  // the engine's budget; the grant at the last border
  std::uint64_t most_;
  std::string trace_;  // of the step, once it is profiled
  OurFile socket_;
  std::uint32_t sample_ms_ = 1000;
  std::unique_ptr<Page> page_;
  std::thread thread_;
};

}  // namespace sentinel
