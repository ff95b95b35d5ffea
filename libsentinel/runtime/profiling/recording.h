// The recorder of the running step, and the question whether it is asked: a step is recorded op by
// op, or only its tensors are named, or neither; and then ops need perhaps not be told at all.
// Knows the layers that the program marks itself; those that the adaptor finds are ignored from the
// first mark on.
//
// Guarded by the session's lock but for on() and wants_tensors(), which take none.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "alloc/address_table.h"
#include "capture/recorder.h"
#include "runtime/profiling/stillness.h"
#include "runtime/step/matcher.h"

namespace sentinel {

class Recording {
 public:
  Recording(OpOrder order, Engine& engine) : order_(order), stillness_(engine) {}

  StepRecorder& recorder() { return recorder_; }
  const StepRecorder& recorder() const { return recorder_; }
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Whether ops have to name the tensors that they use.
  bool wants_tensors() const { return wants_tensors_.load(std::memory_order_relaxed); }
  void ask(bool record, bool tensors) {
    on_ = record;
    wants_tensors_ = tensors;
  }
  Stillness& stillness() { return stillness_; }
  const Stillness& stillness() const { return stillness_; }
  void ask_for_tensors(bool tensors) { wants_tensors_ = tensors; }

  // If it is on. What lives already is known to the recorder as present, in the order of birth.
  void begin_step(AddressTable&, std::uintptr_t arena);
  std::uint64_t hash(const char* op_name) { return names_.hash(op_name); }

  void found_layer(const char* name, Phase);
  void found_layer_once(const char* name, Phase);
  std::string next_mark();  // of a layer, its name: the one before ends
  void marked_layer(const std::string& name);

 private:
  const OpOrder order_;
  StepRecorder recorder_;
  Names names_;
  Stillness stillness_;
  std::atomic<bool> on_ = true, wants_tensors_ = true;
  bool marks_ = false;        // the program marks layers
  std::uint32_t marked_ = 0;  // in this step
};

}  // namespace sentinel
