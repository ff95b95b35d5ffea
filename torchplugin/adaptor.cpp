// The PyTorch adaptor: tells libsentinel what PyTorch does, decides nothing. Built against the
// PyTorch that is found, with its public interfaces alone: the CPU allocator's registration, the
// global op observers, and (from Python) module hooks. Works with 1.13 and 2.x; on a GPU, through
// its interface for pluggable allocators, from 2.1 on.
#include <ATen/Context.h>  // before a name of ours that both have as well
#include <pthread.h>
#include <torch/csrc/autograd/variable.h>

#include <cerrno>

#include "torch_observers.h"
#include "torch_weights.h"

// From Python. 0; 1 where no hooks are wanted; or a negative errno with sentinel_last_error().
// `on_gpu`: the session is of a GPU's memory, which Python then registers the two functions below
// for. There a step's ops come from two threads, the program's and autograd's.
EXPORT int sentinel_torch_attach(int on_gpu) {
  sentinel_replay_with(on_gpu != 0 ? &kDeviceReplayer : &kReplayer);
  const int code = sentinel_attach("torch " TORCH_VERSION,
                                   on_gpu != 0 ? SENTINEL_IN_ANY_ORDER : SENTINEL_IN_SEQUENCE);
  if (code < 0) return code;
  gpu = sentinel_gpu();
  thread.trains = true;
  pthread_atfork(nullptr, nullptr, [] { in_child = true; });
  handle_of = handle_of_stream();
  if (gpu >= 0 && handle_of == nullptr && !kFakeGpu) return -ENOTSUP;
  static Allocator allocator;
  if (gpu < 0 || kFakeGpu) c10::SetCPUAllocator(&allocator, 100);
  if (code > 0) return code;
  using at::RecordScope;
  const auto all = [](bool outputs) {
    return at::RecordFunctionCallback(&start, &end)
        .needsInputs(true)
        .needsOutputs(outputs)
        .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION, RecordScope::USER_SCOPE});
  };
  observers.add(Observers::kAll, all(gpu >= 0));
  if (gpu < 0) {
    observers.add(Observers::kNames, at::RecordFunctionCallback(&start, &end)
                                         .scopes({RecordScope::FUNCTION, RecordScope::USER_SCOPE}));
    observers.add(Observers::kOutputs, all(true));
  } else {
    observers.add(Observers::kNothing,
                  at::RecordFunctionCallback(&start_untold, &end_untold)
                      .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION}));
  }
  return 0;
}

// For torch.cuda.memory.CUDAPluggableAllocator. What is thrown reaches the program as the exception
// that PyTorch's own allocator throws. Of the session's device the memory is managed, of another it
// is the driver's.
EXPORT void* sentinel_torch_gpu_malloc(ssize_t bytes, int device, void* stream) {
  const auto size = static_cast<std::size_t>(bytes);
  void* address = nullptr;
  bool full = false;
  if (device == gpu) {
    sentinel_compute_on(stream);
    address = sentinel_malloc(size);
    full = address == nullptr && bytes != 0;
    if (full) replaying ? void(refused_replay = true) : note_refused(size);
    observers.choose();
  } else {
    const int code = sentinel_unmanaged_malloc(device, size, &address);
    full = code == -ENOMEM;
    TORCH_CHECK(code == 0 || full, "CUDA error under Sentinel: ", sentinel_last_error());
  }
  if (full)
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", bytes,
                     " bytes under Sentinel: ", sentinel_last_error());
  return address;
}

// Whatever the stream: the engine knows of all, and of another device all are waited for.
EXPORT void sentinel_torch_gpu_free(void* address, ssize_t, int device, void*) {
  if (address == nullptr) return;
  device == gpu ? sentinel_free(address) : sentinel_unmanaged_free(device, address);
}

// For record_stream().
EXPORT void sentinel_torch_gpu_record_stream(void* address, void* stream) {
  if (in_child) return;
  sentinel_used_on(address, stream);
  name_stream();
}

// From Python, around what launches kernels past the dispatcher: an op of that name (which stays
// valid) that reads and writes these storages. -EPERM: this thread may launch nothing.
EXPORT int sentinel_torch_launch_begin(const char* name, void* const* storages,
                                       const std::size_t* bytes, std::size_t count) {
  const bool tells = gpu >= 0 && !in_child;
  if (tells && thread.inside == 0 && !trains()) return -EPERM;
  const auto name_operands = [&] {
    for (std::size_t i = 0; i < count; ++i)
      sentinel_op_tensor(storages[i], bytes[i], SENTINEL_READ | SENTINEL_WRITE);
  };
  thread.frames.push_back(!tells              ? Frame::transparent
                          : thread.inside > 0 ? begin_part(true, name_operands)
                                              : begin_op(name, name_operands));
  return 0;
}
EXPORT void sentinel_torch_launch_end() {
  if (leave_frame() == Frame::op && !in_child) sentinel_op_end();
}

// From Python. 1: what lies there stays from now on, and could have left before.
EXPORT int sentinel_torch_pin(const void* storage) {
  if (in_child || gpu < 0) return 0;
  name_stream();
  return sentinel_pin(storage);
}

// From Python, where that may have changed: whether layers are told from now on.
EXPORT int sentinel_torch_tells() {
  observers.choose();
  return observers.told() >= Observers::kAll ? 1 : 0;
}

// From Python, before a process group is made: what collectives are given has to be seen.
EXPORT void sentinel_torch_tell_always() { observers.tell_always(); }

#ifdef SENTINEL_TORCH_FAKE_GPU
// On which tensors begin from now on, in any thread.
EXPORT void sentinel_torch_fake_device(int device) { fake_device = device; }
#endif

EXPORT void sentinel_torch_layer(const char* name) {
  if (in_child) return;
  thread.trains = true;
  if (at::GradMode::is_enabled() && !in_backward()) forward_begins();
  layers().begin(name);
  sentinel_layer_start(name, SENTINEL_FORWARD);
}

EXPORT void sentinel_torch_model(const char* name, std::size_t batch) {
  sentinel_model(name, batch);
}

// From Python, when the program makes an optimizer.
EXPORT void sentinel_torch_optimizer() { unmarked.optimizer_made(); }

// From Python, when Dynamo traces an optimizer's step: compiled, it ends no step of ours.
EXPORT void sentinel_torch_optimizer_compiled() { unmarked.optimizer_compiled(); }

// From Python, when the program compiles something: layers begin at ops from now on.
EXPORT void sentinel_torch_layers_by_op() { layers_by_op = true; }

// From Python: whether the operands of ops are wanted, and those of the kernel that this thread
// calls next; none: it has returned. A tensor is given by its implementation (`_cdata`).
EXPORT int sentinel_torch_wants_operands() {
  return in_child || gpu >= 0 ? 0 : sentinel_wants_tensors();
}
EXPORT void sentinel_torch_kernel_operands(void* const* tensors, const int* writes,
                                           std::size_t count) {
  kernel_operands.clear();
  for (std::size_t i = 0; i < count; ++i)
    kernel_operands.push_back({static_cast<c10::TensorImpl*>(tensors[i]),
                               writes[i] != 0 ? SENTINEL_READ | SENTINEL_WRITE : SENTINEL_READ});
}

// From Python: whether compiled kernels can mark where they begin and end.
EXPORT int sentinel_torch_has_marks() {
  return function_of_torch(kMarkBegins) != nullptr && function_of_torch(kMarkEnds) != nullptr ? 1
                                                                                              : 0;
}

// Inductor's kernels call these two of PyTorch's, and are not linked with it. Pointers and sizes
// are passed on as they are.
EXPORT int aoti_record_function_start(const char* name, void* keywords, void* inputs,
                                      std::uintptr_t count, void* handle) {
  using Start = int (*)(const char*, void*, void*, std::uintptr_t, void*);
  static const auto begins = reinterpret_cast<Start>(function_of_torch(kMarkBegins));
  return begins(name, keywords, inputs, count, handle);
}
EXPORT int aoti_record_function_end(void* handle) {
  using End = int (*)(void*);
  static const auto ends = reinterpret_cast<End>(function_of_torch(kMarkEnds));
  return ends(handle);
}

// From Python: whether it has to tell the two below.
EXPORT int sentinel_torch_may_replay() { return sentinel_may_replay(); }
// The program asks for the address of a storage, to use it past the dispatcher.
EXPORT void sentinel_torch_reached(const void* storage, int lasting) {
  if (!in_child) sentinel_reached(storage, lasting);
}
// It changes what ops compute beside their arguments.
EXPORT void sentinel_torch_settings_change() {
  if (!in_child) sentinel_remake_all();
}

// 1: the next step's layers are told; 0: nothing is wanted of them.
EXPORT int sentinel_torch_step() {
  if (in_child) {
    sentinel_step();
    return 0;
  }
  thread.trains = true;
  unmarked.marked();
  next_step();
  sentinel_step();
  return sentinel_torch_tells();
}
