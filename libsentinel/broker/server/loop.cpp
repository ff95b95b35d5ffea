// Handles live on the heap until libuv has closed them.
#include "broker/server/loop.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "sentinel/error.h"

namespace sentinel {
namespace {

void require(int result, const char* attempt) {
  if (result < 0) throw Error(fmt::format("the broker cannot {}", attempt), -result);
}

template <class State>
void close_later(State* state) {
  state->call = nullptr;
  uv_close(reinterpret_cast<uv_handle_t*>(&state->handle),
           [](uv_handle_t* handle) { delete static_cast<State*>(handle->data); });
}

// The call may end its own handle, so it is kept for as long as it runs.
template <class State, class Handle>
void call(Handle* handle) {
  auto& state = *static_cast<State*>(handle->data);
  if (!state.call) return;
  const auto kept = state.call;
  (*kept)();
}

using Call = std::shared_ptr<std::function<void()>>;

Call call_of(std::function<void()> function) {
  return std::make_shared<std::function<void()>>(std::move(function));
}

}  // namespace

Loop::Loop() { require(uv_loop_init(&loop_), "begin its loop"); }

Loop::~Loop() {
  uv_run(&loop_, UV_RUN_DEFAULT);  // what is being closed, and work under way
  uv_loop_close(&loop_);
}

void Loop::run() { uv_run(&loop_, UV_RUN_DEFAULT); }

void Loop::run_once() { uv_run(&loop_, UV_RUN_ONCE); }

struct Readiness::State {
  uv_poll_t handle;
  Call call;
};

Readiness::Readiness(Loop& loop, int descriptor, std::function<void()> ready)
    : state_(new State{.handle = {}, .call = call_of(std::move(ready))}) {
  const int result = uv_poll_init(loop.get(), &state_->handle, descriptor);
  if (result < 0) delete state_;
  require(result, "watch a descriptor");
  state_->handle.data = state_;
  for_room(false);
}

Readiness::~Readiness() {
  uv_poll_stop(&state_->handle);
  close_later(state_);
}

void Readiness::for_room(bool too) {
  uv_poll_start(&state_->handle, UV_READABLE | UV_DISCONNECT | (too ? UV_WRITABLE : 0),
                [](uv_poll_t* handle, int, int) { call<State>(handle); });
}

struct Timer::State {
  uv_timer_t handle;
  Call call;
};

Timer::Timer(Loop& loop, std::function<void()> rings)
    : state_(new State{.handle = {}, .call = call_of(std::move(rings))}) {
  uv_timer_init(loop.get(), &state_->handle);
  state_->handle.data = state_;
}

Timer::~Timer() { close_later(state_); }

void Timer::in(std::uint64_t ms) {
  uv_timer_start(
      &state_->handle, [](uv_timer_t* handle) { call<State>(handle); }, ms, 0);
}

void Timer::every(std::uint64_t ms) {
  uv_timer_start(
      &state_->handle, [](uv_timer_t* handle) { call<State>(handle); }, ms, ms);
}

void Timer::stop() { uv_timer_stop(&state_->handle); }

struct Signal::State {
  uv_signal_t handle;
  Call call;
};

Signal::Signal(Loop& loop, int number, std::function<void()> came)
    : state_(new State{.handle = {}, .call = call_of(std::move(came))}) {
  uv_signal_init(loop.get(), &state_->handle);
  state_->handle.data = state_;
  uv_signal_start(
      &state_->handle, [](uv_signal_t* handle, int) { call<State>(handle); }, number);
}

Signal::~Signal() { close_later(state_); }

void in_background(Loop& loop, std::function<void()> work, std::function<void()> done) {
  struct Request {
    uv_work_t handle;
    std::function<void()> work, done;
  };
  auto* const request = new Request{{}, std::move(work), std::move(done)};
  request->handle.data = request;
  const int result = uv_queue_work(
      loop.get(), &request->handle,
      [](uv_work_t* handle) { static_cast<Request*>(handle->data)->work(); },
      [](uv_work_t* handle, int) {
        const std::unique_ptr<Request> ended(static_cast<Request*>(handle->data));
        ended->done();
      });
  if (result < 0) delete request;
  require(result, "begin work beside its loop");
}

}  // namespace sentinel
