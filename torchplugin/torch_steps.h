// Forward passes as they begin: the steps that no optimizer's step marks, and the forward and
// backward passes that an optimizer runs itself (LBFGS, SAM, Lightning's closures).
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <atomic>
#include <cstdint>

#include "torch_frames.h"
#include "torch_operands.h"

namespace {

// Finds where a step ends that nothing marks: the program updates parameters itself, uses
// functions of torch.func, or updates within the backward pass. There a forward pass follows a
// backward pass. A program that has made an optimizer is trusted to step it for a while: it may be
// accumulating gradients. It is not where the optimizer's step is compiled, which marks no end. The
// core takes no found step once one was marked. Any thread may call.
class UnmarkedSteps {
 public:
  void optimizer_made() { optimizer_made_ = true; }
  void optimizer_compiled() { optimizer_compiled_ = true; }
  void marked() { backward_over_ = false; }
  void backward_ended() { backward_over_.store(true, std::memory_order_relaxed); }
  bool may_end() const { return backward_over_.load(std::memory_order_relaxed); }
  // True: the step before this forward pass is over.
  bool forward_begins() {
    if (!backward_over_.exchange(false, std::memory_order_relaxed)) return false;
    return ++passes_ > kPatience || !optimizer_made_ || optimizer_compiled_;
  }

 private:
  static constexpr std::uint32_t kPatience = 64;  // passes without a step of the optimizer's
  std::atomic<bool> backward_over_ = false, optimizer_made_ = false, optimizer_compiled_ = false;
  std::atomic<std::uint32_t> passes_ = 0;
};
UnmarkedSteps unmarked;

bool requires_grad(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() && value.toTensor().requires_grad();
  if (!value.isList()) return false;
  for (const c10::IValue& element : value.toListRef())
    if (requires_grad(element)) return true;
  return false;
}

// The op computes on with something that gradients are wanted of.
bool is_forward(const at::RecordFunction& fn, const Kind& kind) {
  if (!at::GradMode::is_enabled() || !kind.computes) return false;
  for (const auto& input : fn.inputs())
    if (requires_grad(input)) return true;
  return false;
}

std::atomic<bool> a_step_ended = false;

void next_step() {
  a_step_ended.store(true, std::memory_order_relaxed);
  thread.layer = nullptr;
  thread.layers_by_op = 0;
  layers().clear();
}

void need_operands();  // torch_observers.h
void want_recipes();   // the same

void forward_begins() {
  if (thread.optimizer > 0) {
    need_operands();
    thread.closure = true;
  } else if (unmarked.forward_begins() && sentinel_step_found() == 0) {
    thread.trains = true;
    next_step();
    want_recipes();
  }
}

// Before an op that is part of no other. Within Optimizer.step the update follows where gradients
// are off again.
void follow_passes(const at::RecordFunction& fn, const Kind& kind) {
  if (thread.optimizer > 0) {
    if (in_backward()) return;
    if (thread.closure && !at::GradMode::is_enabled()) {
      thread.closure = false;
      sentinel_layer_start(thread.optimizer_name.c_str(), SENTINEL_OPTIMIZER);
    } else if (!thread.closure && is_forward(fn, kind)) {
      forward_begins();
    }
  } else if (unmarked.may_end() && thread.backward == 0 && is_forward(fn, kind)) {
    forward_begins();
  }
}

}  // namespace
