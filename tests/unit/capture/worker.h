// A thread that does what it is told, so that accesses come from threads of the test's choice.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <thread>

namespace sentinel {

class Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker() {
    post([this] { stop_ = true; });
    thread_.join();
  }
  void post(std::function<void()> task) {
    std::promise<void> done;
    task_ = [&] {
      task();
      done.set_value();
    };
    state_.store(1);
    state_.notify_one();
    done.get_future().wait();
  }

 private:
  void run() {
    while (!stop_) {
      state_.wait(0);
      state_.store(0);
      task_();
    }
  }
  std::atomic<int> state_{0};
  std::function<void()> task_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sentinel
