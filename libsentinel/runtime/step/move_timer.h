// Says when a move that was put off is due, also while an op computes: a thread that is there once
// the first one was.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/step/put_off.h"

namespace sentinel {

class MoveTimer {
 public:
  // `rings` is called by the thread, without a lock, and may call at().
  explicit MoveTimer(std::function<void()> rings) : rings_(std::move(rings)) {}
  ~MoveTimer();
  MoveTimer(const MoveTimer&) = delete;
  MoveTimer& operator=(const MoveTimer&) = delete;

  // It rings then, as now_us() counts, and at no other time. By any thread, with or without the
  // session's lock; not in a forked child. Throws std::system_error where no thread can be had.
  void at(double due_us);

 private:
  void wait();

  const std::function<void()> rings_;
  std::mutex lock_;  // guards all below; taken after the session's
  std::condition_variable changed_;
  double due_us_ = PutOffMoves::kNever;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace sentinel
