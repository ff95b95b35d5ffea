// The dispatcher's side of an op: its kind by its schema, and the tensors that it reads and writes.
// It begins and ends no op.
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "torch_device.h"
#include "torch_frames.h"

namespace {

struct Kind {
  const char* at = nullptr;  // where its name lay
  std::string name;
  bool op = false;        // of its own: neither a composite nor a mere mark
  bool node = false;      // the mark of all that autograd does for a node, and not only its kernels
  bool computes = false;  // makes something new, and is no look at a value
  bool fills = false;     // writes its first operand whole, whatever that held
  bool writes = false;    // some operand, by its schema
  bool collective = false;        // between processes
  bool kernel = false;            // of compiled code, which names no operands
  bool foreign = false;           // the program's own operator
  bool graph = false;             // the mark of a compiled graph's forward pass
  const char* lasting = nullptr;  // its name, of one that has no schema
};

constexpr char kCollective[] = "c10d::";
constexpr char kNode[] = "autograd::engine::evaluate_function";  // behind it the node's name

bool is_written(const c10::Argument& formal) {
  return formal.alias_info() != nullptr && formal.alias_info()->isWrite();
}

bool writes_operand(const c10::OperatorHandle& op) {
  if (!op.hasSchema()) return false;
  const auto& formals = op.schema().arguments();
  return std::any_of(formals.begin(), formals.end(), is_written);
}

bool makes_something(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name().name;
  if (name == "aten::detach" || name == "aten::_local_scalar_dense") return false;
  return !writes_operand(op);
}

// A fused kernel ("graph_0_cpp_fused_add_1"), or what a wrapper in C++ calls of PyTorch.
bool is_compiled_kernel(std::string_view name) {
  constexpr std::string_view graph = "graph_", kernel = "cpp_", call = "aoti_torch_";
  if (name.substr(0, graph.size()) == graph) {
    name.remove_prefix(graph.size());
    while (!name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0)
      name.remove_prefix(1);
    if (!name.empty()) name.remove_prefix(1);
  }
  return name.substr(0, kernel.size()) == kernel || name.substr(0, call.size()) == call;
}

// By the name's address; marks may have temporary names, so an entry is good only while its text is
// the same.
const Kind& kind_of(const at::RecordFunction& fn) {
  static const Kind node = [] {
    Kind kind;
    kind.node = true;
    return kind;
  }();
  if (std::strncmp(fn.name(), kNode, sizeof kNode - 1) == 0) return node;
  static thread_local std::unordered_map<const char*, Kind> known;
  static thread_local std::array<Kind*, 256> nearby{};  // by the address as well: of a few bytes
  const char* const name_now = fn.name();
  auto& near = nearby[(reinterpret_cast<std::uintptr_t>(name_now) >> 4) % nearby.size()];
  if (near != nullptr && near->at == name_now && near->name == name_now) return *near;
  auto& entry = known[name_now];
  near = &entry;
  if (entry.name == name_now) return entry;
  entry = {name_now, name_now};
  if (const auto name = fn.operator_name())
    if (const auto op = c10::Dispatcher::singleton().findSchema(*name)) {
      entry.op = !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
                 (gpu >= 0 && op->hasKernelForDispatchKey(kGpuKernel));
      entry.fills = name->name == "aten::zero_";
      entry.foreign = name->name.rfind("aten::", 0) != 0;
      entry.writes = writes_operand(*op);
      entry.computes = entry.op && makes_something(*op);
    }
  if (!entry.op && fn.scope() == at::RecordScope::FUNCTION && !fn.operator_name()) {
    entry.kernel = gpu < 0 && is_compiled_kernel(entry.name);
    entry.graph = gpu < 0 && entry.name == "CompiledFunction";
    entry.op = entry.kernel;
    entry.computes = entry.graph;
    if (entry.kernel) entry.lasting = lasting_name(fn.name());
  }
  entry.collective = entry.name.rfind(kCollective, 0) == 0;
  return entry;
}

// What a kernel does with a tensor that it is given.
enum class Use : char {
  read,
  updated,    // in place
  statistic,  // updated for later steps: what the op makes does not depend on it
  ignored,    // given, and neither read nor written
};

using Inputs = c10::ArrayRef<const c10::IValue>;

// Whether a normalisation computes its statistics, and only updates the running ones that it is
// given. The schema does not say that it updates them; of one that does nothing else the name does.
bool trains(const c10::FunctionSchema& schema, Inputs inputs) {
  const auto& formals = schema.arguments();
  for (std::size_t i = 0; i < formals.size(); ++i)
    if (formals[i].name() == "training" || formals[i].name() == "train")
      return inputs[i].isBool() && inputs[i].toBool();
  return schema.name().find("update_stats") != std::string::npos;
}

Use use_of(const c10::FunctionSchema& schema, const c10::Argument& formal, Inputs inputs) {
  if (formal.name() == "running_mean" || formal.name() == "running_var") {
    if (!trains(schema, inputs)) return Use::read;
    return schema.name().find("backward") == std::string::npos ? Use::statistic : Use::ignored;
  }
  return is_written(formal) ? Use::updated : Use::read;
}

void name_tensor(const at::Tensor& tensor, int access) {
  if (!tensor.defined() || !tensor.has_storage() || !managed(tensor)) return;
  const auto& storage = tensor.storage();
  if (storage.nbytes() == 0) return;
  const auto& data = storage.data_ptr();
  if (data.get_deleter() != &deallocate || data.get_context() == data.get())
    return sentinel_op_tensor(storage.data(), storage.nbytes(), access);
  // A weight that was brought (torch_weights.h) begins within its block.
  const auto* block = static_cast<const char*>(data.get_context());
  const auto lead = static_cast<std::size_t>(static_cast<const char*>(storage.data()) - block);
  sentinel_op_tensor(block, lead + storage.nbytes(), access);
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

// What the op's schema says it writes is written; the rest is read. Statistics that it updates are
// told where a plan replays ops: what another op has read of them is made again before.
void name_inputs(const at::RecordFunction& fn) {
  const auto op = fn.operator_name() ? c10::Dispatcher::singleton().findSchema(*fn.operator_name())
                                     : c10::nullopt;
  std::size_t i = 0;
  for (const auto& input : fn.inputs()) {
    bool written = false;
    if (op && op->hasSchema() && i < op->schema().arguments().size()) {
      const auto use = use_of(op->schema(), op->schema().arguments()[i], fn.inputs());
      written = use == Use::updated || (use == Use::statistic && sentinel_wants_recipes() != 0);
    }
    name_tensors(input, written ? SENTINEL_READ | SENTINEL_WRITE : SENTINEL_READ);
    ++i;
  }
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

}  // namespace
