// Which operands of a task have to be looked at. One that waits for its fetch sleeps until its
// place has changed: an op of many thousand operands waits as often, and would look at all each
// time.
//
// An operand is a number, its place in the task's list. Knows nothing of where operands lie.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "sim/job/op_uses.h"

namespace sentinel::sim {

class Wakeful {
 public:
  explicit Wakeful(std::size_t storages) : operand_of_(storages, kNone) {}

  // All are awake. No storage is an operand twice.
  void begin(std::span<const Operand> operands) {
    for (const std::uint32_t storage : storages_) operand_of_[storage] = kNone;
    storages_.clear();
    for (const Operand& o : operands) {
      operand_of_[o.storage.index()] = static_cast<std::uint32_t>(storages_.size());
      storages_.push_back(o.storage.value);
    }
    wake_all();
  }

  void wake_all() {
    awake_.resize(storages_.size());
    std::iota(awake_.begin(), awake_.end(), 0u);
    is_awake_.assign(storages_.size(), true);
  }

  void wake(std::span<const StorageId> storages) {
    const auto before = static_cast<std::ptrdiff_t>(awake_.size());
    for (const StorageId s : storages) {
      const std::uint32_t i = operand_of_[s.index()];
      if (i == kNone || is_awake_[i]) continue;
      is_awake_[i] = true;
      awake_.push_back(i);
    }
    if (before == std::ssize(awake_)) return;
    std::sort(awake_.begin() + before, awake_.end());
    std::inplace_merge(awake_.begin(), awake_.begin() + before, awake_.end());
  }

  // Those awake, ascending.
  std::span<const std::uint32_t> awake() const { return awake_; }
  // stays(operand): what it answers no for goes to sleep. Ascending.
  template <class Stays>
  void visit(Stays&& stays) {
    std::erase_if(awake_, [&](std::uint32_t i) { return !(is_awake_[i] = stays(i)); });
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::vector<std::uint32_t> operand_of_;  // per storage
  std::vector<std::uint32_t> storages_;    // per operand
  std::vector<std::uint32_t> awake_;
  std::vector<bool> is_awake_;  // per operand
};

}  // namespace sentinel::sim
