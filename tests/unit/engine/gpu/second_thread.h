// A thread that outlives what it is given to do, as autograd's for a device does.
#pragma once

#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace sentinel::rig {

class SecondThread {
 public:
  ~SecondThread() {
    next_.set_value({});
    thread_.join();
  }
  // Returns when that has been done.
  void run(std::function<void()> work) {
    const auto ended = (ended_ = {}).get_future();
    next_.set_value(std::move(work));
    ended.wait();
  }

 private:
  void loop() {
    while (true) {
      const auto work = next_.get_future().get();
      if (!work) return;
      next_ = {};
      work();
      ended_.set_value();
    }
  }

  std::promise<std::function<void()>> next_;
  std::promise<void> ended_;
  std::thread thread_{[this] { loop(); }};
};

}  // namespace sentinel::rig
