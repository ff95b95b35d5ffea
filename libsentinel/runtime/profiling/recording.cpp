// Starts the recorder for a step, and passes it layers by mark or by module.
#include "runtime/profiling/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace sentinel {

void Recording::begin_step(AddressTable& table, std::uintptr_t arena) {
  marked_ = 0;
  if (!on()) return;
  recorder_.begin(order_);
  if (marks_) recorder_.layer("layer 1", Phase::forward);
  std::vector<LiveTensor*> alive;
  table.for_each([&](LiveTensor& tensor) { alive.push_back(&tensor); });
  std::sort(alive.begin(), alive.end(), [](auto* a, auto* b) { return a->birth < b->birth; });
  for (auto* tensor : alive)
    tensor->record = recorder_.present(tensor->bytes, tensor->address - arena);
}

void Recording::found_layer(const char* name, Phase phase) {
  if (on() && !marks_) recorder_.layer(name, phase);
}

void Recording::found_layer_once(const char* name, Phase phase) {
  if (on() && !marks_) recorder_.layer_once(name, phase);
}

std::string Recording::next_mark() {
  if (!std::exchange(marks_, true) && on())
    recorder_.one_layer("layer 1");  // and not what was found until now
  return fmt::format("layer {}", ++marked_ + 1);
}

void Recording::marked_layer(const std::string& name) {
  if (on()) recorder_.layer(name, Phase::forward);
}

}  // namespace sentinel
