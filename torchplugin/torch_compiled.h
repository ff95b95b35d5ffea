// Code that torch.compile makes: which marks are its kernels and graphs, and where layers begin in
// it, which calls no module's hook.
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <string_view>

#include "torch_frames.h"
#include "torch_operands.h"
#include "torch_steps.h"

namespace {

constexpr char kMarkBegins[] = "aoti_record_function_start";
constexpr char kMarkEnds[] = "aoti_record_function_end";

// PyTorch's own, whoever else offers one of that name.
void* function_of_torch(const char* name) {
  static void* const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : dlsym(library, name);
}

std::atomic<bool> layers_by_op = false;  // modules are not heard any more

// Ops with a weight of their own.
bool has_weight(std::string_view op) {
  constexpr std::array heavy{"conv", "addmm", "::mm", "bmm", "linear", "lstm", "gru", "embedding"};
  return std::any_of(heavy.begin(), heavy.end(),
                     [&](const char* part) { return op.find(part) != op.npos; });
}

// In compiled code each kernel begins a layer. In the rest a forward op does, whose gradient's node
// is of that layer. An update is one layer.
void begin_layer_at(const at::RecordFunction& fn, const Kind& kind) {
  if (!layers_by_op.load(std::memory_order_relaxed) || phase() == SENTINEL_OPTIMIZER) return;
  if (!kind.kernel && (in_backward() || !has_weight(kind.name))) return;
  const auto name = std::string(fn.name()) + " " + std::to_string(++thread.layers_by_op);
  if (!in_backward()) layers().begin(name.c_str());
  sentinel_layer_start(name.c_str(), phase());
}

// A fused kernel's operands, which its wrapper in Python tells before it calls the kernel: the mark
// of the kernel's beginning names none. Whoever tells them keeps them, until it tells that they are
// over.
struct Operand {
  c10::TensorImpl* tensor;
  int access;
};
thread_local std::vector<Operand> kernel_operands;

void name_kernel_operands() {
  for (const auto& [impl, access] : kernel_operands)
    name_tensor(
        at::Tensor(
            c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(impl)),
        access);
}

// Its kernels compute without gradients: the graph is what a forward pass begins with.
void follow_graph(const at::RecordFunction& fn, const Kind& kind) {
  follow_passes(fn, kind);
  if (!in_backward()) layers().note(fn.seqNr());
}

}  // namespace
