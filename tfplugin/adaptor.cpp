// The TensorFlow adaptor: tells libsentinel what TensorFlow does, decides nothing. Built against
// the headers of the TensorFlow that is found, loaded before TensorFlow's first tensor. It uses two
// of TensorFlow's registries: that of CPU allocators, and that of devices, where a CPU device of
// ours is told of every op before and after it computes.
#include "sentinel/adaptor.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/strings/match.h"
#include "tensorflow/core/common_runtime/device_factory.h"
#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/common_runtime/process_state.h"
#include "tensorflow/core/common_runtime/threadpool_device.h"
#include "tensorflow/core/framework/allocator_registry.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/platform/numa.h"
#include "tensorflow/core/public/session_options.h"

namespace {

namespace tf = tensorflow;

// ---------------------------------------------------------------- memory

class Allocator final : public tf::Allocator {
 public:
  std::string Name() override { return "sentinel"; }
  void* AllocateRaw(size_t alignment, size_t bytes) override {
    if (alignment <= kAllocatorAlignment) return sentinel_malloc(bytes == 0 ? 1 : bytes);
    return std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  }
  void DeallocateRaw(void* memory) override { sentinel_free(memory); }
  tsl::AllocatorMemoryType GetMemoryType() const override {
    return tsl::AllocatorMemoryType::kHostPageable;
  }
};

// For the pool that TensorFlow keeps where devices are bound to NUMA nodes.
class SubAllocator final : public tf::SubAllocator {
 public:
  SubAllocator() : tf::SubAllocator({}, {}) {}
  void* Alloc(size_t, size_t bytes, size_t* received) override {
    *received = bytes;
    return bytes == 0 ? nullptr : sentinel_malloc(bytes);
  }
  void Free(void* memory, size_t) override { sentinel_free(memory); }
  bool SupportsCoalescing() const override { return false; }
  tsl::AllocatorMemoryType GetMemoryType() const override {
    return tsl::AllocatorMemoryType::kHostPageable;
  }
};

class AllocatorFactory final : public tf::AllocatorFactory {
 public:
  tf::Allocator* CreateAllocator() override { return new Allocator; }
  tf::SubAllocator* CreateSubAllocator(int) override { return new SubAllocator; }
};

// ---------------------------------------------------------------- names

// Names outlive the graphs that they are of: equal text is equal pointers, for ever.
const char* interned(std::string_view text) {
  static auto& lock = *new std::mutex;
  static auto& names = *new std::unordered_set<std::string>;
  const std::lock_guard guard(lock);
  return names.emplace(text).first->c_str();
}

// What Python has told: the scopes ("model/block/conv") of layers that own a matrix of weights, and
// of optimizers.
constexpr const char* kNoLayer = "(no layer)";
struct Scope {
  const char* layer = nullptr;
  int phase = SENTINEL_FORWARD;
};
struct Scopes {
  std::mutex lock;
  std::unordered_map<std::string, Scope> known;
  std::atomic<std::size_t> told = 0;  // how many
};
Scopes& scopes() {
  static auto& all = *new Scopes;
  return all;
}

struct Kernel {
  std::string type, node;       // what this entry is of: kernels come and go, addresses come again
  const char* name = nullptr;   // the op's, for people and for recognising it
  const char* layer = nullptr;  // that begins with it; null: whichever began last
  int phase = SENTINEL_FORWARD;
  bool alone = false;     // in no scope
  bool passes = false;    // it hands tensors into a function or out of it
  bool aliases = false;   // its output is its input's memory
  bool compiled = false;  // by XLA, from a function
  bool updates = false;   // it writes the variables that it is given
  std::size_t told = 0;   // how many scopes were known
};

bool one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  for (const auto each : words)
    if (word == each) return true;
  return false;
}

// Without what inlining a function puts before its nodes' names.
std::string_view inlined(std::string_view node) {
  constexpr std::string_view calls[] = {"StatefulPartitionedCall", "PartitionedCall", "while"};
  for (bool cut = true; cut;) {
    cut = false;
    const auto slash = node.find('/');
    if (slash == node.npos) break;
    const auto first = node.substr(0, slash);
    for (const auto call : calls)
      if (absl::StartsWith(first, call) &&
          first.find_first_not_of("_0123456789", call.size()) == first.npos)
        cut = true;
    if (cut) node.remove_prefix(slash + 1);
  }
  return node;
}

// The longest of the known scopes in which the node lies.
Scope scope_of(std::string_view node) {
  auto& scopes = ::scopes();
  const std::lock_guard guard(scopes.lock);
  for (auto end = node.rfind('/'); end != node.npos && end != 0; end = node.rfind('/', end - 1))
    if (const auto at = scopes.known.find(std::string(node.substr(0, end)));
        at != scopes.known.end())
      return at->second;
  return {};
}

// Ops that have a layer's weights as an operand, or an optimizer's. Others run as soon as they can,
// often at the very beginning of the step.
bool begins_layer(const Kernel& kernel) {
  if (kernel.updates) return true;
  for (const auto part : {"Conv", "MatMul", "Einsum", "Gather"})
    if (absl::StrContains(kernel.type, part)) return true;
  return false;
}

// A node's scopes tell where it belongs. What runs one by one has none: it is where Python is.
void place(Kernel& kernel) {
  constexpr std::string_view tape = "gradient_tape/";
  kernel.told = scopes().told;
  auto node = inlined(kernel.node);
  kernel.alone = node.find('/') == node.npos;
  const bool backward = absl::StartsWith(node, tape);
  if (backward) node.remove_prefix(tape.size());
  const auto scope = scope_of(node);
  kernel.layer = begins_layer(kernel) ? scope.layer : nullptr;
  kernel.phase = scope.phase != SENTINEL_FORWARD ? scope.phase
                 : backward                      ? SENTINEL_BACKWARD
                                                 : SENTINEL_FORWARD;
}

// "conv/convolution (Conv2D)"; run one by one, ops have no more of a name than their type.
std::string name_of(const Kernel& kernel) {
  const auto node = inlined(kernel.node);
  if (kernel.compiled) return std::string(node) + " (XLA cluster)";
  const auto leaf = node.substr(node.rfind('/') + 1);
  if (absl::StartsWith(leaf, kernel.type)) return std::string(node);
  return std::string(node) + " (" + kernel.type + ")";
}

const Kernel& kernel_of(const tf::OpKernel& op) {
  static thread_local std::unordered_map<const tf::OpKernel*, Kernel> known;
  constexpr std::size_t kMost = 1 << 16;  // kernels that came and went
  if (known.size() > kMost) known.clear();
  auto& kernel = known[&op];
  const bool same = kernel.name != nullptr && kernel.node == op.name_view() &&
                    kernel.type == op.type_string_view();
  if (!same) {
    kernel = {std::string(op.type_string_view()), std::string(op.name_view())};
    const auto must = op.def().attr().find("_XlaMustCompile");
    kernel.compiled = must != op.def().attr().end() && must->second.b();
    kernel.name = interned(name_of(kernel));
    kernel.passes = one_of(kernel.type, {"_Arg", "_Retval", "NoOp"});
    kernel.aliases = one_of(kernel.type, {"Identity",
                                          "IdentityN",
                                          "Reshape",
                                          "Squeeze",
                                          "ExpandDims",
                                          "StopGradient",
                                          "PreventGradient",
                                          "ReadVariableOp",
                                          "Bitcast",
                                          "Snapshot",
                                          "VarHandleOp",
                                          "Shape",
                                          "ShapeN",
                                          "Rank",
                                          "Size",
                                          "BroadcastGradientArgs",
                                          "AssignVariableOp",
                                          "Switch",
                                          "Merge",
                                          "Enter",
                                          "Exit",
                                          "NextIteration",
                                          "EnsureShape",
                                          "PlaceholderWithDefault",
                                          "SentinelStartProfile",
                                          "SentinelEndProfile",
                                          "SentinelAddLayer"});
    kernel.updates = absl::StartsWith(kernel.type, "ResourceApply") ||
                     absl::StartsWith(kernel.type, "ResourceSparseApply") ||
                     absl::StartsWith(kernel.type, "ResourceScatter") ||
                     one_of(kernel.type, {"AssignAddVariableOp", "AssignSubVariableOp"});
    place(kernel);
  } else if (kernel.told != scopes().told) {
    place(kernel);
  }
  return kernel;
}

// ---------------------------------------------------------------- ops

const tf::TensorBuffer* root_of(const tf::Tensor& tensor) {
  auto* buffer = tf::DMAHelper::buffer(&tensor);
  return buffer == nullptr ? nullptr : const_cast<tf::TensorBuffer*>(buffer)->root_buffer();
}

void name_tensor(const tf::Tensor& tensor, int access) {
  if (const auto* root = root_of(tensor); root != nullptr && root->size() != 0)
    sentinel_op_tensor(root->data(), root->size(), access);
}

void name_variable(tf::OpKernelContext& context, const tf::Tensor& handle, int access) {
  if (handle.NumElements() != 1) return;
  tf::core::RefCountPtr<tf::Var> variable;
  if (!tf::LookupResource(&context, handle.scalar<tf::ResourceHandle>()(), &variable).ok()) return;
  const tf::tf_shared_lock guard(*variable->mu());
  if (variable->is_initialized) name_tensor(*variable->tensor(), access);
}

void name_inputs(const Kernel& kernel, tf::OpKernelContext& context) {
  if (kernel.aliases) return;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (!context.has_input(i) || context.input_is_ref(i)) continue;
    const tf::Tensor& input = context.input(i);
    if (input.dtype() == tf::DT_RESOURCE)
      name_variable(context, input,
                    kernel.updates ? SENTINEL_READ | SENTINEL_WRITE : SENTINEL_READ);
    else
      name_tensor(input, SENTINEL_READ);
  }
}

// Memory of an input that an output took over was written in place.
void name_outputs(const Kernel& kernel, tf::OpKernelContext& context) {
  if (kernel.aliases) return;
  for (int o = 0; o < context.num_outputs(); ++o) {
    const tf::Tensor* output = context.mutable_output(o);
    const auto* root = output == nullptr ? nullptr : root_of(*output);
    if (root == nullptr) continue;
    for (int i = 0; i < context.num_inputs(); ++i)
      if (context.has_input(i) && !context.input_is_ref(i) && root_of(context.input(i)) == root) {
        name_tensor(*output, SENTINEL_WRITE);
        break;
      }
  }
}

// Which ops are the training's: those that the thread which attached runs one by one, and those of
// the functions that it calls. They share the container of what lives as long as a step; functions
// of an input pipeline have one each.
std::atomic<const void*> training_steps = nullptr;
std::atomic<bool> backward_begun = false;  // in this step
thread_local bool attached_here = false;
thread_local int phase_here = SENTINEL_FORWARD;
thread_local bool inside = false;  // an op: what runs within it is part of it

bool of_training(const tf::OpKernelContext& context) {
  const void* steps = context.step_container();
  if (attached_here && steps != nullptr) training_steps.store(steps, std::memory_order_relaxed);
  return steps != nullptr && steps == training_steps.load(std::memory_order_relaxed);
}

class Device final : public tf::ThreadPoolDevice {
 public:
  using tf::ThreadPoolDevice::ThreadPoolDevice;
  void Compute(tf::OpKernel* op, tf::OpKernelContext* context) override {
    if (inside) return tf::ThreadPoolDevice::Compute(op, context);
    const bool trains = of_training(*context);
    const auto* kernel = trains ? &kernel_of(*op) : nullptr;
    if (trains && kernel->passes) return tf::ThreadPoolDevice::Compute(op, context);
    inside = true;  // Python that a pipeline calls runs ops as the training does
    if (trains)
      observed(*kernel, op, context);
    else
      tf::ThreadPoolDevice::Compute(op, context);
    inside = false;
  }
  void ComputeAsync(tf::AsyncOpKernel* op, tf::OpKernelContext* context,
                    tf::AsyncOpKernel::DoneCallback done) override {
    const bool trains = of_training(*context);
    if (const auto* kernel = trains && !inside ? &kernel_of(*op) : nullptr;
        kernel != nullptr && kernel->compiled)
      return launched(*kernel, op, context, std::move(done));
    const bool was_inside = inside;
    inside = inside || !trains;
    tf::ThreadPoolDevice::ComputeAsync(op, context, std::move(done));
    inside = was_inside;
  }

 private:
  void observed(const Kernel& kernel, tf::OpKernel* op, tf::OpKernelContext* context) {
    const bool names = begin(kernel, *context);
    tf::ThreadPoolDevice::Compute(op, context);
    end(kernel, *context, names);
  }

  // A cluster that XLA compiled. On the CPU it has run when the call returns; `done` may go on with
  // what follows in this same thread.
  void launched(const Kernel& kernel, tf::AsyncOpKernel* op, tf::OpKernelContext* context,
                tf::AsyncOpKernel::DoneCallback done) {
    inside = true;
    const bool names = begin(kernel, *context);
    const auto ended = std::make_shared<std::atomic<bool>>(false);
    const auto thread = std::this_thread::get_id();
    tf::ThreadPoolDevice::ComputeAsync(op, context, [=, &kernel, done = std::move(done)] {
      if (std::this_thread::get_id() == thread && !ended->exchange(true)) {
        end(kernel, *context, names);
        inside = false;
      }
      done();
    });
    if (ended->exchange(true)) return;
    sentinel_op_end();
    inside = false;
  }

  // Whether its tensors are to be named.
  static bool begin(const Kernel& kernel, tf::OpKernelContext& context) {
    // An optimizer counts steps, and lets weights decay, at any time.
    const bool early = kernel.phase == SENTINEL_OPTIMIZER && !backward_begun;
    if (kernel.phase == SENTINEL_BACKWARD && kernel.layer != nullptr) backward_begun = true;
    sentinel_op_start(kernel.name, kernel.alone ? phase_here : kernel.phase,
                      early ? nullptr : kernel.layer);
    const bool names = sentinel_wants_tensors() != 0;
    if (names) name_inputs(kernel, context);
    sentinel_op_run();
    return names;
  }
  static void end(const Kernel& kernel, tf::OpKernelContext& context, bool names) {
    if (names && context.status().ok()) name_outputs(kernel, context);
    sentinel_op_end();
  }
};

// As TensorFlow's own makes them, of another class.
class DeviceFactory final : public tf::DeviceFactory {
 public:
  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    devices->push_back("/physical_device:CPU:0");
    return absl::OkStatus();
  }
  absl::Status CreateDevices(const tf::SessionOptions& options, const std::string& prefix,
                             std::vector<std::unique_ptr<tf::Device>>* devices) override {
    const auto& counts = options.config.device_count();
    const auto asked = counts.find("CPU");
    const int count = asked == counts.end() ? 1 : asked->second;
    const bool by_node = options.config.experimental().use_numa_affinity();
    for (int i = 0; i < count; ++i) {
      tf::DeviceLocality locality;
      int node = tf::port::kNUMANoAffinity;
      if (by_node) locality.set_numa_node(node = i % tf::port::NUMANumNodes());
      devices->push_back(std::make_unique<Device>(
          options, prefix + "/device:CPU:" + std::to_string(i), tf::Bytes(256 << 20), locality,
          tf::ProcessState::singleton()->GetCPUAllocator(node)));
    }
    return absl::OkStatus();
  }
};

void enter_registries(bool watches) {
  constexpr int kPriority =
      1000;  // TensorFlow's own: 100 and 200 for memory, 60 and 70 for devices
  tf::AllocatorFactoryRegistry::singleton()->Register(__FILE__, __LINE__, "sentinel", kPriority,
                                                      new AllocatorFactory);
  if (watches)
    tf::DeviceFactory::Register("CPU", std::make_unique<DeviceFactory>(), kPriority, false);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// From Python, in the thread that will train, before TensorFlow is imported. 0; 1 where no hooks
// are wanted; or a negative errno with sentinel_last_error().
EXPORT int sentinel_tensorflow_attach() {
  const int code = sentinel_attach("tensorflow " SENTINEL_TENSORFLOW, SENTINEL_IN_ANY_ORDER);
  if (code < 0) return code;
  attached_here = true;
  enter_registries(code == 0);
  if (code == 0) sentinel_layer_start(kNoLayer, SENTINEL_FORWARD);
  return code;
}

// In a process that does nothing else (TensorFlow ends one in which it does not work): whether
// tensors come from here and ops are seen. Null, or what is wrong.
EXPORT const char* sentinel_tensorflow_check() {
  attached_here = true;
  enter_registries(true);
  static std::string wrong;
  if (tf::cpu_allocator()->Name() != "sentinel") {
    wrong = "its tensors come from allocator " + tf::cpu_allocator()->Name();
    return wrong.c_str();
  }
  auto device = tf::DeviceFactory::NewDevice("CPU", {}, "/job:localhost/replica:0/task:0");
  if (dynamic_cast<Device*>(device.get()) == nullptr) return "its CPU device is another's";
  tf::Tensor tensor(device->GetAllocator({}), tf::DT_FLOAT, {1024});
  if (tensor.data() == nullptr) return sentinel_last_error();
  std::memset(tensor.data(), 0, tensor.TotalBytes());
  return nullptr;
}

EXPORT void sentinel_tensorflow_model(const char* name) { sentinel_model(name, 0); }

// Of a graph: nodes in this scope are the layer's, or the optimizer's, by its phase.
EXPORT void sentinel_tensorflow_scope(const char* scope, const char* layer, int phase) {
  auto& scopes = ::scopes();
  const std::lock_guard guard(scopes.lock);
  scopes.told += scopes.known.insert_or_assign(scope, Scope{interned(layer), phase}).second;
}

// Of ops that the calling thread runs one by one.
EXPORT void sentinel_tensorflow_layer(const char* name, int phase) {
  phase_here = phase;
  sentinel_layer_start(name, phase);
}
EXPORT void sentinel_tensorflow_phase(int phase) { phase_here = phase; }

EXPORT void sentinel_tensorflow_step() {
  attached_here = true;  // whoever ends steps calls what trains
  backward_begun = false;
  sentinel_step();
  sentinel_layer_start(kNoLayer, SENTINEL_FORWARD);
}
