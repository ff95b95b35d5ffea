// Ops within ops, per thread, and the layers that they belong to. It tells libsentinel nothing.
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
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
  bool closure = false;         // it runs a forward and a backward pass
  const char* layer = nullptr;  // of the node that was begun last
  int layers_by_op = 0;         // that began in this step
  int functions = 0;            // that run, one in another
  int refused = 0;  // which of them was refused memory and has not told the program yet; 0: none
};
thread_local Thread thread;

// Valid for the life of the process, and the same for equal names.
const char* lasting_name(const char* name) {
  static std::mutex lock;
  static std::unordered_set<std::string> names;
  const std::lock_guard guard(lock);
  return names.emplace(name).first->c_str();
}

// The layer that a forward op belonged to, by autograd's sequence number: the node with the same
// number computes that op's gradient. Numbers of one step follow one another, so a table of as many
// entries finds each by its last bits, and neither allocates nor frees within a step.
class Layers {
 public:
  void begin(const char* name) {
    const std::lock_guard guard(lock_);
    current_ = lasting_name(name);
  }
  void note(int64_t sequence) {
    if (sequence < 0) return;
    const std::lock_guard guard(lock_);
    while (taken(entry(sequence), sequence) && entries_.size() < kMost) grow();
    entry(sequence) = {sequence, step_, current_};
  }
  // Null: of no op that is known.
  const char* of(int64_t sequence) {
    const std::lock_guard guard(lock_);
    if (sequence < 0) return nullptr;
    const auto& at = entry(sequence);
    return at.step == step_ && at.sequence == sequence ? at.layer : nullptr;
  }
  void clear() {
    const std::lock_guard guard(lock_);
    ++step_;
    current_ = kNone;
  }

 private:
  struct Entry {
    int64_t sequence = 0;
    std::uint64_t step = 0;  // in which it was noted; 0: never
    const char* layer = nullptr;
  };
  static constexpr std::size_t kLeast = 1 << 10, kMost = 1 << 20;  // ops between two steps
  static constexpr const char* kNone = "(no module)";

  Entry& entry(int64_t sequence) {
    return entries_[static_cast<std::uint64_t>(sequence) & (entries_.size() - 1)];
  }
  bool taken(const Entry& at, int64_t sequence) const {
    return at.step == step_ && at.sequence != sequence;
  }
  void grow() {
    const auto before = std::exchange(entries_, std::vector<Entry>(entries_.size() * 2));
    for (const auto& at : before)
      if (at.step == step_) entry(at.sequence) = at;
  }

  std::mutex lock_;
  const char* current_ = kNone;
  std::uint64_t step_ = 1;
  std::vector<Entry> entries_ = std::vector<Entry>(kLeast);  // as many as a power of two
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
