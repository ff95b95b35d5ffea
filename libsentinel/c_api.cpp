// The C interfaces. One session a process, made by sentinel_attach() or sentinel_start_profile()
// and never destroyed: a framework frees tensors until the process is gone.
#include <pthread.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include "base/cache.h"
#include "base/failure.h"
#include "runtime/replay/remaking.h"
#include "runtime/session.h"
#include "sentinel/adaptor.h"
#include "sentinel/error.h"

namespace {

using sentinel::OpOrder;
using sentinel::Phase;
using sentinel::Session;

std::atomic<Session*> session = nullptr;
std::atomic<const sentinel_replayer*> replayer = nullptr;
thread_local std::string last_error = "no failure";

int failed(const std::string& text, int code) {
  last_error = text;
  return -code;
}

Session* current() { return session.load(std::memory_order_acquire); }

void before_fork() { current()->before_fork(); }
void after_fork_in_parent() { current()->after_fork_in_parent(); }
void after_fork_in_child() { current()->after_fork_in_child(); }

int begin(sentinel::SessionOptions options, const char* framework,
          OpOrder order = OpOrder::sequence) {
  static std::mutex beginning;  // two threads may take their first tensor at the same time
  const std::lock_guard guard(beginning);
  if (current() != nullptr) return 0;
  if (options.gpu.device && std::string_view(framework).substr(0, 5) != "torch")
    return failed("--tiers fast=gpu...: a GPU's memory is managed for PyTorch alone", EOPNOTSUPP);
  const auto* replays = options.moves.recompute ? replayer.load() : nullptr;
  try {
    session = new Session(std::move(options), framework, order, replays);
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    std::atexit([] {
      current()->finish("the program ended during the profiling step");
      current()->program_ends();
    });
    return 0;
  } catch (const sentinel::Error& error) {
    return failed(error.what(), error.code() != 0 ? error.code() : EINVAL);
  } catch (const std::exception& error) {
    return failed(sentinel::in_words(error), ENOMEM);
  }
}

// A program that brackets its own step needs no command around it.
int begin_alone() {
  try {
    auto options = sentinel::options_from_environment();
    if (options.mode == sentinel::Mode::none) options.mode = sentinel::Mode::record;
    if (options.output.empty()) options.output = "profile.sentinel";
    return begin(std::move(options), "c");
  } catch (const std::exception& error) {
    return failed(sentinel::in_words(error), EINVAL);
  }
}

template <class Open>
int descriptor(Open open) try {
  return open().release();
} catch (const sentinel::Error& error) {
  return failed(error.what(), error.code() != 0 ? error.code() : EPERM);
} catch (const std::exception& error) {
  return failed(sentinel::in_words(error), ENOMEM);
}

Phase phase_of(int phase) {
  return phase == SENTINEL_BACKWARD    ? Phase::backward
         : phase == SENTINEL_OPTIMIZER ? Phase::optimizer
                                       : Phase::forward;
}

}  // namespace

extern "C" {

int sentinel_attach(const char* framework, int order) {
  if (current() != nullptr) return failed("a session is active already", EALREADY);
  try {
    auto options = sentinel::options_from_environment();
    if (options.mode == sentinel::Mode::none) return failed("SENTINEL_MODE is not set", ENOENT);
    const bool watches = options.mode != sentinel::Mode::arena;
    const int code = begin(std::move(options), framework,
                           order == SENTINEL_IN_ANY_ORDER ? OpOrder::any : OpOrder::sequence);
    return code == 0 && !watches ? 1 : code;
  } catch (const std::exception& error) {
    return failed(sentinel::in_words(error), EINVAL);
  }
}

int sentinel_start_profile(void) {
  if (current() == nullptr)
    if (const int code = begin_alone(); code != 0) return code;
  try {
    const int code = current()->start_profile();
    return code == 0 ? 0 : failed("a profile has been started already", -code);
  } catch (const std::exception& error) {
    return failed(sentinel::in_words(error), EIO);
  }
}

int sentinel_end_profile(void) {
  if (current() == nullptr) return failed("no profile was started", EINVAL);
  try {
    const int code = current()->end_profile();
    return code == 0 ? 0 : failed("no profile was started", -code);
  } catch (const sentinel::Error& error) {
    return failed(error.what(), error.code() != 0 ? error.code() : EIO);
  } catch (const std::exception& error) {
    return failed(sentinel::in_words(error), EIO);
  }
}

int sentinel_add_layer(void) {
  if (current() == nullptr) return failed("no session is active", EINVAL);
  current()->layer_end();
  return 0;
}

int sentinel_step(void) {
  if (current() == nullptr) return failed("no session is active", EINVAL);
  current()->step_end();
  return 0;
}

// A program may take its first tensors before it starts its first profile: they belong to the same
// session.
void* sentinel_malloc(size_t bytes) {
  if (current() == nullptr && begin_alone() != 0) {
    errno = ENOMEM;
    return nullptr;
  }
  void* memory = current()->allocate(bytes);
  current()->replays().remaking().soil(memory, bytes);
  if (memory == nullptr && bytes != 0) {
    failed(current()->why_full(bytes), ENOMEM);
    errno = ENOMEM;
  }
  return memory;
}

void sentinel_free(void* tensor) {
  if (tensor != nullptr) current()->release(tensor);
}

const char* sentinel_last_error(void) { return last_error.c_str(); }

int sentinel_step_found(void) {
  return current() != nullptr && current()->step_found() ? 0 : -EALREADY;
}
int sentinel_wants_tensors(void) { return current() != nullptr && current()->wants_tensors(); }
int sentinel_wants_ops(void) { return current() == nullptr || current()->wants_ops(); }
int sentinel_op_untold(int begins) { return current()->untold(begins != 0) ? 0 : -EAGAIN; }
void sentinel_op_start(const char* name, int phase, const char* layer) {
  current()->op_start(name, phase_of(phase), layer);
}
void sentinel_op_tensor(const void* storage, size_t bytes, int access) {
  current()->op_tensor(storage, bytes, access);
}
void sentinel_replay_with(const sentinel_replayer* with) { replayer = with; }
int sentinel_op_wants_recipe(void) {
  return current() != nullptr && current()->replays().wants_recipe();
}
int sentinel_may_replay(void) {
  return current() != nullptr && current()->replays().remaking().possible();
}
int sentinel_wants_recipes(void) {
  return current() != nullptr && current()->replays().wants_recipes();
}
uint64_t sentinel_tensor_number(const void* storage) {
  return current() != nullptr ? current()->replays().number(storage) : 0;
}
void sentinel_reached(const void* storage, int lasting) {
  if (current() != nullptr) current()->replays().reached(storage, lasting != 0);
}
void sentinel_remake_all(void) {
  if (current() != nullptr) current()->replays().remaking().all_there();
}
void sentinel_op_recipe(void* recipe, const uint64_t* read, size_t reads, const uint64_t* written,
                        size_t writes) {
  current()->replays().recipe(recipe, {read, reads}, {written, writes});
}
void sentinel_op_run(void) { current()->op_run(); }
int sentinel_gpu(void) { return current() != nullptr ? current()->gpu() : -1; }
void sentinel_compute_on(void* stream) { current()->compute_on(stream); }
void sentinel_forget_stream(void* stream) {
  if (current() != nullptr) current()->forget_stream(stream);
}
void sentinel_used_on(const void* storage, void* stream) { current()->used_on(storage, stream); }
int sentinel_pin(const void* storage) { return current()->pin(storage) ? 1 : 0; }
size_t sentinel_gpu_budget(void) { return current()->device_budget(); }
int sentinel_gpu_has_room(size_t bytes) try {
  return current()->device_has_room(bytes) ? 1 : 0;
} catch (const std::exception&) {  // nothing is known of the device any more
  return 0;
}
int sentinel_unmanaged_malloc(int device, size_t bytes, void** memory) {
  try {
    *memory = current()->others().allocate(device, bytes);
    if (*memory != nullptr || bytes == 0) return 0;
    return failed(current()->others().why_full(device, bytes), ENOMEM);
  } catch (const std::exception& error) {
    return failed(sentinel::in_words(error), EIO);
  }
}
void sentinel_unmanaged_free(int device, void* memory) {
  if (memory != nullptr) current()->others().release(device, memory);
}
void sentinel_gpu_memory(int device, size_t figures[5], int reset) {
  const auto memory = device == current()->gpu() ? current()->memory(reset != 0)
                                                 : current()->others().figures(device, reset != 0);
  figures[0] = memory.live_bytes, figures[1] = memory.most_live_bytes;
  figures[2] = memory.held_bytes, figures[3] = memory.most_held_bytes;
  figures[4] = memory.budget_bytes;
}
int sentinel_cache_open(void) {
  return descriptor([] { return sentinel::cache::open_folder(sentinel::cache::Absent::make); });
}
int sentinel_library_open(int folder, const char* name) {
  return descriptor([=] { return sentinel::cache::open_library(folder, name); });
}
void sentinel_op_end(void) { current()->op_end(); }
void sentinel_layer_start(const char* name, int phase) { current()->layer(name, phase_of(phase)); }
void sentinel_model(const char* name, size_t batch) { current()->model(name, batch); }
void sentinel_unsupported(const char* what) { current()->unsupported(what); }
void sentinel_detach(const char* reason) { current()->finish(reason); }

}  // extern "C"
