// Sessions of tests. They live as long as the process, as a program's do.
#pragma once

#include <utility>
#include <vector>

#include "runtime/session.h"

namespace sentinel::test {

// Kept where a look for leaks finds it.
inline Session& begin_session(SessionOptions options, OpOrder order,
                              const sentinel_replayer* replayer = nullptr) {
  static auto& begun = *new std::vector<Session*>;
  return *begun.emplace_back(new Session(std::move(options), "test", order, replayer));
}

}  // namespace sentinel::test
