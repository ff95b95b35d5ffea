// Faults to inject into replays, for tests: "remake:3:FLIP" flips a bit of the third tensor that is
// made again, "trial:3:FLIP" one of the third that is made to try whether it can be,
// "remake:3:DROP" leaves the first recipe out of the third chain that is run, "remake:3:EIO" has
// that chain fail, and "note:3:DROP" loses the third recipe that the adaptor gives.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace sentinel {

class Spoiling {
 public:
  // Whether the text names a fault of replays; else it is an engine's.
  static bool is_of_replays(const std::string& inject);

  // Throws Error where a fault of replays is none of those above.
  explicit Spoiling(const std::string& inject);

  bool flips_this(bool trial) {
    return kind_ == (trial ? Kind::flip_trial : Kind::flip) && ++seen_ == at_;
  }
  bool drops_of_this() { return kind_ == Kind::drop && ++seen_ == at_; }
  bool fails_this() { return kind_ == Kind::fail && ++seen_ == at_; }
  bool loses_this() { return kind_ == Kind::lose && ++seen_ == at_; }

 private:
  enum class Kind { none, flip, flip_trial, drop, fail, lose };
  Kind kind_ = Kind::none;
  std::uint64_t at_ = 0;
  std::atomic<std::uint64_t> seen_ = 0;
};

}  // namespace sentinel
