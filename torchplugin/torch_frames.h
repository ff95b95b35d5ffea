// Ops within ops, per thread, and the layers that they belong to. It tells libsentinel nothing.
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "torch_device.h"

namespace {

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
  // Of the outermost Optimizer.step: its name, and the backward passes that it began in.
  std::string optimizer_name;
  int backward_around = 0;
  bool closure = false;  // it runs a forward and a backward pass
  std::string layer;     // of the node that was begun last
  int layers_by_op = 0;  // that began in this step
  int functions = 0;     // that run, one in another
  int refused = 0;  // which of them was refused memory and has not told the program yet; 0: none
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

// An optimizer may step within the backward pass, or run one itself.
bool in_backward() { return thread.backward > (thread.optimizer > 0 ? thread.backward_around : 0); }

int phase() {
  if (in_backward()) return SENTINEL_BACKWARD;
  return thread.optimizer > 0 && !thread.closure ? SENTINEL_OPTIMIZER : SENTINEL_FORWARD;
}

}  // namespace
