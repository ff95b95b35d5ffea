// SPDX-License-Identifier: Apache-2.0
// The one way in which offline code (trace, plan, sim, report, tools) reports failure: an
// exception that carries what was attempted, the native error code, and what to do about it.
// Hot paths (allocator, fault handling, executors) are noexcept and return native errno values;
// nothing throws across the C ABI.
#pragma once

#include <stdexcept>
#include <string>

namespace sentinel {

class Error : public std::runtime_error {
 public:
  // `attempted` is a sentence without a final stop; `code` an errno value or 0. It may quote what a
  // file holds: what() is printable() (base/text.h) whatever that was.
  explicit Error(const std::string& attempted, int code = 0);
  int code() const noexcept { return code_; }

 private:
  int code_;
};

}  // namespace sentinel
