// The PyTorch adaptor: tells libsentinel what PyTorch does, decides nothing. Built against the
// PyTorch that is found, with its public interfaces alone: the CPU allocator's registration, the
// global op observers, and (from Python) module hooks. Works with 1.13 and 2.x; on a GPU, through
// its interface for pluggable allocators, from 2.1 on.
#include "sentinel/adaptor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <torch/version.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define SENTINEL_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > major || (TORCH_VERSION_MAJOR == major && TORCH_VERSION_MINOR >= minor))

EXPORT void* sentinel_torch_gpu_malloc(ssize_t bytes, int device, void* stream);
EXPORT void sentinel_torch_gpu_free(void* address, ssize_t bytes, int device, void* stream);

namespace {

// Tests build with it: there the processor's PyTorch takes the device's part, in the memory of a
// driver's library of their own.
#ifdef SENTINEL_TORCH_FAKE_GPU
constexpr bool kFakeGpu = true;
#else
constexpr bool kFakeGpu = false;
#endif
constexpr auto kGpu = kFakeGpu ? c10::DeviceType::CPU : c10::DeviceType::CUDA;
constexpr auto kGpuKernel = kFakeGpu ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;

int gpu = -1;           // the device whose memory is the fast tier; none: the processor's own
bool in_child = false;  // forked: nothing is managed here, and CUDA is not to be asked
int fake_device = 0;    // of kFakeGpu: on which tensors begin
constexpr int kOther = 1;

void deallocate(void* address) {
  if (address == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(address);
  kFakeGpu ? sentinel_torch_gpu_free(address, 0, gpu, nullptr) : sentinel_free(address);
}

// Of kFakeGpu: by its deleter what lies on the other device is told.
void deallocate_elsewhere(void* address) {
  if (address != nullptr) sentinel_torch_gpu_free(address, 0, kOther, nullptr);
}

class Allocator final : public c10::Allocator {
 public:
#if SENTINEL_TORCH_AT_LEAST(2, 3)
  c10::DataPtr allocate(size_t bytes) override { return take(bytes); }
#else
  c10::DataPtr allocate(size_t bytes) const override { return take(bytes); }
#endif
#if SENTINEL_TORCH_AT_LEAST(2, 2)
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &deallocate; }

 private:
  static c10::DataPtr take(size_t bytes) {
    if (kFakeGpu && fake_device == kOther) {
      void* there = sentinel_torch_gpu_malloc(static_cast<ssize_t>(bytes), kOther, nullptr);
      return {there, there, &deallocate_elsewhere, c10::Device(c10::DeviceType::CPU)};
    }
    void* address = kFakeGpu ? sentinel_torch_gpu_malloc(static_cast<ssize_t>(bytes), gpu, nullptr)
                             : sentinel_malloc(bytes);
    if (address == nullptr && bytes != 0) throw std::bad_alloc();
    if (address != nullptr) c10::profiledCPUMemoryReporter().New(address, bytes);
    return {address, address, &deallocate, c10::Device(c10::DeviceType::CPU)};
  }
};

// Op observers nest; a composite op is transparent, inside any other op all is part of it.
enum class Frame : char { transparent, op, inner, backward, optimizer };

struct Depths {
  int inside = 0;     // below an op
  int backward = 0;   // below what autograd does for a node
  int optimizer = 0;  // below Optimizer.step
};

struct Thread : Depths {
  std::vector<Frame> frames;
  bool trains = false;
  std::string layer;  // of the node that was begun last
  int functions = 0;  // that run, one in another
  int refused = 0;    // which of them was refused memory and has not told the program yet; 0: none
};
thread_local Thread thread;

// The layer that a forward op belonged to, by autograd's sequence number: the node with the same
// number computes that op's gradient.
class Layers {
 public:
  void begin(const char* name) {
    const std::lock_guard guard(lock_);
    current_ = name;
  }
  void note(int64_t sequence) {
    const std::lock_guard guard(lock_);
    if (of_sequence_.size() == kMost) of_sequence_.clear();  // nobody steps here
    if (sequence >= 0) of_sequence_.insert_or_assign(sequence, current_);
  }
  // Empty: of no op that is known.
  std::string of(int64_t sequence) {
    const std::lock_guard guard(lock_);
    const auto at = of_sequence_.find(sequence);
    return at == of_sequence_.end() ? std::string() : at->second;
  }
  void clear() {
    const std::lock_guard guard(lock_);
    of_sequence_.clear();
    current_ = kNone;
  }

 private:
  static constexpr std::size_t kMost = 1 << 20;  // ops between two steps
  static constexpr const char* kNone = "(no module)";
  std::mutex lock_;
  std::string current_ = kNone;
  std::unordered_map<int64_t, std::string> of_sequence_;
};

// On the CPU a graph's backward runs in the thread that asks for it, on a GPU in the device's.
Layers& layers() {
  static Layers shared;
  static thread_local Layers own;
  return gpu < 0 ? own : shared;
}

int phase() {
  return thread.optimizer > 0  ? SENTINEL_OPTIMIZER
         : thread.backward > 0 ? SENTINEL_BACKWARD
                               : SENTINEL_FORWARD;
}

struct Kind {
  std::string name;
  bool op = false;     // of its own: neither a composite nor a mere mark
  bool node = false;   // the mark of all that autograd does for a node, and not only its kernels
  bool fills = false;  // writes its first operand whole, whatever that held
  bool collective = false;  // between processes
};

constexpr char kCollective[] = "c10d::";

// By the name's address; marks ("autograd::engine::…") have temporary names, so an entry is good
// only while its text is the same.
const Kind& kind_of(const at::RecordFunction& fn) {
  static thread_local std::unordered_map<const char*, Kind> known;
  auto& entry = known[fn.name()];
  if (entry.name == fn.name()) return entry;
  entry = {fn.name()};
  if (const auto name = fn.operator_name())
    if (const auto op = c10::Dispatcher::singleton().findSchema(*name)) {
      entry.op = !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
                 (gpu >= 0 && op->hasKernelForDispatchKey(kGpuKernel));
      entry.fills = name->name == "aten::zero_";
    }
  entry.collective = entry.name.rfind(kCollective, 0) == 0;
  entry.node = entry.name.rfind("autograd::engine::evaluate_function", 0) == 0;
  return entry;
}

// Not so what lies on another device.
bool managed(const at::Tensor& tensor) {
  const auto device = tensor.device();
  if (gpu < 0) return device.is_cpu();
  if (kFakeGpu) return tensor.storage().data_ptr().get_deleter() != &deallocate_elsewhere;
  return device.type() == kGpu && device.index() == gpu;
}

void name_tensor(const at::Tensor& tensor, int access) {
  if (!tensor.defined() || !tensor.has_storage() || !managed(tensor)) return;
  const auto& storage = tensor.storage();
  if (storage.nbytes() != 0) sentinel_op_tensor(storage.data(), storage.nbytes(), access);
}

// What stands between the dispatcher and a kernel that fills a tensor, and lets it pass.
constexpr c10::DispatchKeySet kPlain{c10::DispatchKey::CPU, c10::DispatchKey::ADInplaceOrView,
                                     c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutocastCPU,
                                     c10::DispatchKey::BackendSelect};

// Whether the op, which fills its operand, is certain to write each byte of a storage of ours and
// to read none: nobody stands between the dispatcher and the kernel (a mode, a transform or a
// subclass may read first, or refuse), autograd and inference mode let it, and the operand is all
// of the storage.
bool fills_storage(const at::Tensor& tensor) {
  if (!tensor.defined() || gpu >= 0) return false;
  for (const c10::DispatchKey key :
       tensor.key_set() | c10::impl::tls_local_dispatch_key_set().included_)
    if (!kPlain.has(key)) return false;
  if (!tensor.has_storage() || tensor.is_inference()) return false;
  if (at::GradMode::is_enabled() && tensor.requires_grad()) return false;
  const auto& storage = tensor.storage();
  return storage.data_ptr().get_deleter() == &deallocate && tensor.is_non_overlapping_and_dense() &&
         tensor.storage_offset() == 0 &&
         static_cast<std::size_t>(tensor.numel()) * tensor.itemsize() == storage.nbytes();
}

void name_tensors(const c10::IValue& value, int access) {
  if (value.isTensor()) return name_tensor(value.toTensor(), access);
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) name_tensor(tensor, access);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) name_tensors(element, access);
  }
}

// What the op's schema says it writes is written; the rest is read.
void name_inputs(const at::RecordFunction& fn) {
  const auto op = fn.operator_name() ? c10::Dispatcher::singleton().findSchema(*fn.operator_name())
                                     : c10::nullopt;
  std::size_t i = 0;
  for (const auto& input : fn.inputs()) {
    bool written = false;
    if (op && op->hasSchema() && i < op->schema().arguments().size())
      if (const auto* alias = op->schema().arguments()[i].alias_info()) written = alias->isWrite();
    name_tensors(input, written ? SENTINEL_READ | SENTINEL_WRITE : SENTINEL_READ);
    ++i;
  }
}

Frame start_node(const at::RecordFunction& fn) {
  ++thread.backward;
  thread.trains = true;
  if (auto layer = layers().of(fn.seqNr()); !layer.empty()) {
    sentinel_layer_start(layer.c_str(), SENTINEL_BACKWARD);
    thread.layer = std::move(layer);
  }
  return Frame::backward;
}

Frame start_user_scope(const at::RecordFunction& fn) {
  if (std::strncmp(fn.name(), "Optimizer.step#", 15) != 0) return Frame::transparent;
  if (thread.optimizer++ == 0) sentinel_layer_start(fn.name(), SENTINEL_OPTIMIZER);
  return Frame::optimizer;
}

// c10::cuda::CUDAStream::stream() const, of a class that is a c10::Stream and nothing beside: so
// that nothing of CUDA is needed to build. Null: PyTorch's CUDA part is not here.
using HandleOf = void* (*)(const c10::Stream*);
HandleOf handle_of_stream() {
  void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr
             ? nullptr
             : reinterpret_cast<HandleOf>(dlsym(library, "_ZNK3c104cuda10CUDAStream6streamEv"));
}
HandleOf handle_of = nullptr;

void* stream_of_this_thread() {
  if (kFakeGpu) return nullptr;
  const c10::impl::VirtualGuardImpl device(kGpu);
  const auto stream = device.getStream({kGpu, static_cast<c10::DeviceIndex>(gpu)});
  return handle_of(&stream);
}

// The op's kernels are launched where the calling thread launches now. Said before anything else of
// the op: the stream of this thread's last one may be destroyed by now.
void name_stream() {
  if (gpu >= 0) sentinel_compute_on(stream_of_this_thread());
}

// On a GPU one op runs at a time: in the thread that attached, calls layers or ends steps, or in
// autograd's while that waits. What loads data beside them launches nothing.
bool trains() { return gpu < 0 || thread.trains; }

// Beside the node's own kernels: gradients are added up that come from several uses, summed to
// their shape, given to hooks.
Frame start_node_mark() {
  ++thread.backward;
  thread.trains = true;
  return Frame::backward;
}

// A part of the op that runs. On a GPU what that does not name has to be there, too.
template <class NameOperands>
Frame begin_part(NameOperands&& name_operands) {
  ++thread.inside;
  if (gpu < 0) return Frame::inner;
  name_stream();
  name_operands();
  sentinel_op_run();
  return Frame::inner;
}

template <class NameOperands>
Frame begin_op(const char* name, NameOperands&& name_operands) {
  ++thread.inside;
  // Of autograd's thread for a device layers are heard with its ops alone.
  const bool with_layer = gpu >= 0 && thread.backward > 0 && !thread.layer.empty();
  name_stream();
  sentinel_op_start(name, phase(), with_layer ? thread.layer.c_str() : nullptr);
  name_operands();
  sentinel_op_run();
  return Frame::op;
}

bool is_managed(const c10::IValue& value) {
  if (value.isTensor())
    return value.toTensor().defined() && value.toTensor().has_storage() &&
           managed(value.toTensor());
  if (!value.isList()) return false;
  for (const c10::IValue& element : value.toListRef())
    if (is_managed(element)) return true;
  return false;
}

// In a line that steers no terminal: names and exceptions may say anything.
[[noreturn]] void stop_training(std::string why) {
  for (char& c : why)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') c = '?';
  std::fprintf(stderr, "sentinel: training stopped: %s\n", why.c_str());
  std::fflush(nullptr);
  _exit(125);
}

// Whoever computes it, in threads and on streams of its own, does so where no op is seen: what it
// reads might have left, what it writes be written over.
void refuse_collective(const at::RecordFunction& fn) {
  for (const auto& input : fn.inputs())
    if (is_managed(input))
      stop_training(
          std::string(fn.name()) + " is given tensors of gpu" + std::to_string(gpu) +
          ", which a collective cannot be under Sentinel: copy them to the processor before");
}

// An op that is refused memory and ends well has computed another way: cuDNN takes another
// algorithm where it gets no workspace. Its numbers need not be those of a training with the
// memory.
void note_refused(std::size_t bytes) {
  if (thread.functions > 0 && sentinel_gpu_has_room(bytes)) thread.refused = thread.functions;
}

void start_function(const at::RecordFunction& fn) {
  if (gpu >= 0 && fn.scope() == at::RecordScope::FUNCTION) ++thread.functions;
}

// An exception that passes takes the refusal with it, to an op around this one or to the program,
// which sees it and decides, as it does in a Python function that autograd runs.
void end_function(const at::RecordFunction& fn) {
  if (gpu < 0 || fn.scope() != at::RecordScope::FUNCTION || thread.functions == 0) return;
  const bool refused = thread.refused == thread.functions--;
  if (!refused) return;
  if (std::uncaught_exceptions() == 0 && fn.operator_name())
    stop_training(std::string(fn.name()) +
                  " was refused memory within the budget and has gone on another way, which may "
                  "give other numbers than with the memory; raise --fast");
  thread.refused = std::uncaught_exceptions() == 0 ? 0 : thread.functions;
}

Frame start_op(const at::RecordFunction& fn) {
  if (gpu >= 0 && kind_of(fn).collective) refuse_collective(fn);
  if (thread.inside > 0) return begin_part([&] { name_inputs(fn); });
  const auto& kind = kind_of(fn);
  if (kind.node) return start_node_mark();
  if (!kind.op || !trains()) return Frame::transparent;
  const bool overwrites = kind.fills && !fn.inputs().empty() && fn.inputs()[0].isTensor() &&
                          fills_storage(fn.inputs()[0].toTensor());
  if (thread.backward == 0) layers().note(fn.seqNr());
  return begin_op(fn.name(), [&] {
    if (overwrites)
      name_tensor(fn.inputs()[0].toTensor(), SENTINEL_WRITE | SENTINEL_OVERWRITE);
    else if (sentinel_wants_tensors())
      name_inputs(fn);
  });
}

void start_frame(const at::RecordFunction& fn) {
  const auto scope = fn.scope();
  thread.frames.push_back(scope == at::RecordScope::BACKWARD_FUNCTION ? start_node(fn)
                          : scope == at::RecordScope::USER_SCOPE      ? start_user_scope(fn)
                                                                      : start_op(fn));
}

Frame leave_frame() {
  if (thread.frames.empty()) return Frame::transparent;
  const auto frame = thread.frames.back();
  thread.frames.pop_back();
  if (frame == Frame::backward) --thread.backward;
  if (frame == Frame::optimizer) --thread.optimizer;
  if (frame == Frame::inner || frame == Frame::op) --thread.inside;
  return frame;
}

void end_frame(const at::RecordFunction& fn) {
  if (leave_frame() != Frame::op) return;
  if (gpu >= 0)  // what it made is its outputs, and may leave; not so what a library keeps
    for (const c10::IValue& output : fn.outputs()) name_tensors(output, SENTINEL_WRITE);
  sentinel_op_end();
}

// PyTorch drops what an observer throws and runs the op all the same. On a GPU what it uses need
// not be there then: training ends instead. On the processor every access is served, and the op is
// one that is not told.
void not_told(const at::RecordFunction& fn, const std::exception& error) noexcept {
  if (gpu < 0) return;
  const std::string what = error.what();  // behind it PyTorch tells where it was thrown
  const auto said = what.substr(0, what.find("\nException raised from"));
  const bool python = said.empty();  // its text would have to be asked for
  stop_training(std::string("what ") + fn.name() + " uses cannot be told (" +
                (python ? "a Python exception" : said) +
                "); give it tensors that have a device and a storage, or train on the processor");
}

// While ops need not be told: of nothing but the stream on which they are launched. It needs no
// inputs, which PyTorch would box for it. What is told again within one of these ops is a part of
// it.
std::unique_ptr<at::ObserverContext> start_untold(const at::RecordFunction& fn) {
  if (in_child) return nullptr;
  start_function(fn);
  if (fn.scope() == at::RecordScope::BACKWARD_FUNCTION) thread.trains = true;
  if (std::strncmp(fn.name(), kCollective, sizeof kCollective - 1) == 0)
    stop_training(std::string(fn.name()) +
                  ": what it is given cannot be seen now; make process groups from Python");
  if (thread.inside++ > 0) return nullptr;
  if (sentinel_op_untold(1) != 0)  // its observer was chosen before another thread wanted memory
    stop_training(
        std::string(fn.name()) +
        ": another thread needs memory just as it begins, and what it uses cannot be named "
        "any more; give the program more of the device's memory");
  if (thread.trains) name_stream();
  return nullptr;
}

void end_untold(const at::RecordFunction& fn, at::ObserverContext*) {
  if (in_child) return;
  end_function(fn);
  if (--thread.inside == 0) sentinel_op_untold(0);
}

// One of the two observers is on. They are exchanged at a step's border, and when memory gets short
// in between, for what begins next. Meanwhile both may see an op.
class Observers {
 public:
  void tell_always() {
    always_ = true;
    choose();
  }
  void add(at::CallbackHandle told, at::CallbackHandle untold) {
    told_ = told, untold_ = untold;
    at::disableCallback(untold_);
  }
  void choose() {
    const bool told = always_ || sentinel_wants_ops() != 0;
    if (told == tells_.load(std::memory_order_relaxed)) return;
    const std::lock_guard guard(lock_);
    if (told == tells_) return;
    at::reenableCallback(told ? told_ : untold_);
    at::disableCallback(told ? untold_ : told_);
    tells_ = told;
  }

 private:
  std::mutex lock_;
  std::atomic<bool> tells_ = true, always_ = false;
  at::CallbackHandle told_ = 0, untold_ = 0;
};
Observers observers;

std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& fn) {
  if (in_child) return nullptr;
  start_function(fn);
  const Depths before = thread;
  try {
    start_frame(fn);
  } catch (const std::exception& error) {
    not_told(fn, error);
    static_cast<Depths&>(thread) = before;
    thread.frames.push_back(Frame::transparent);
  }
  return nullptr;
}

void end(const at::RecordFunction& fn, at::ObserverContext*) {
  if (in_child) return;
  end_function(fn);
  try {
    end_frame(fn);
  } catch (const std::exception& error) {
    not_told(fn, error);
  }
}

}  // namespace
// From Python. 0; 1 where no hooks are wanted; or a negative errno with sentinel_last_error().
// `on_gpu`: the session is of a GPU's memory, which Python then registers the two functions below
// for. There a step's ops come from two threads, the program's and autograd's.
EXPORT int sentinel_torch_attach(int on_gpu) {
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
  const auto told = at::addGlobalCallback(
      at::RecordFunctionCallback(&start, &end)
          .needsInputs(true)
          .needsOutputs(gpu >= 0)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                   at::RecordScope::USER_SCOPE}));
  if (gpu < 0) return 0;
  observers.add(told, at::addGlobalCallback(at::RecordFunctionCallback(&start_untold, &end_untold)
                                                .scopes({at::RecordScope::FUNCTION,
                                                         at::RecordScope::BACKWARD_FUNCTION})));
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
    if (full) note_refused(size);
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
                          : thread.inside > 0 ? begin_part(name_operands)
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

// From Python, before a process group is made: what collectives are given has to be seen.
EXPORT void sentinel_torch_tell_always() { observers.tell_always(); }

#ifdef SENTINEL_TORCH_FAKE_GPU
// On which tensors begin from now on, in any thread.
EXPORT void sentinel_torch_fake_device(int device) { fake_device = device; }
#endif

EXPORT void sentinel_torch_layer(const char* name) {
  if (in_child) return;
  thread.trains = true;
  layers().begin(name);
  sentinel_layer_start(name, SENTINEL_FORWARD);
}

EXPORT void sentinel_torch_model(const char* name, std::size_t batch) {
  sentinel_model(name, batch);
}

EXPORT void sentinel_torch_step() {
  if (in_child) return;
  thread.trains = true;
  thread.layer.clear();
  layers().clear();
  sentinel_step();
  if (gpu >= 0) observers.choose();
}
