// libuv's loop and handles, owned: one that goes out of scope calls nobody any more, also where it
// does so within its own call. One thread.
#pragma once

#include <uv.h>

#include <cstdint>
#include <functional>

namespace sentinel {

class Loop {
 public:
  Loop();  // throws Error
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void run();
  void run_once();  // waits for one event at most
  void stop() { uv_stop(&loop_); }
  std::uint64_t now_ms() { return uv_now(&loop_); }
  uv_loop_t* get() { return &loop_; }

 private:
  uv_loop_t loop_;
};

// Something can be read from or written to a descriptor, which outlives this.
class Readiness {
 public:
  Readiness(Loop&, int descriptor,
            std::function<void()> ready);  // throws Error; until it is readable
  ~Readiness();
  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;

  void for_room(bool too);  // also where there is room to write

 private:
  struct State;
  State* state_;
};

class Timer {
 public:
  Timer(Loop&, std::function<void()> rings);  // throws Error
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void in(std::uint64_t ms);     // once
  void every(std::uint64_t ms);  // again and again
  void stop();

 private:
  struct State;
  State* state_;
};

class Signal {
 public:
  Signal(Loop&, int number, std::function<void()> came);  // throws Error
  ~Signal();
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

 private:
  struct State;
  State* state_;
};

// `work` in another thread, then `done` in the loop's. Neither throws.
void in_background(Loop&, std::function<void()> work, std::function<void()> done);

}  // namespace sentinel
