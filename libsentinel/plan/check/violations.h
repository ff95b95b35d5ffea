// What verify() found, in words.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "sentinel/profile.h"

namespace sentinel::plan {

class Violations {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (list_.size() < kMostViolations)
      list_.push_back(printable(fmt::format(format, std::forward<Args>(args)...)));
  }
  bool empty() const { return list_.empty(); }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  static constexpr std::size_t kMostViolations = 20;

  std::vector<std::string> list_;
};

inline std::string named(const Profile& profile, TensorId t) {
  return fmt::format("tensor {} ({})", t.value, profile.tensors[t.index()].name);
}

}  // namespace sentinel::plan
