// How a session speaks to the person who runs the program: lines on stderr, and the end of a
// training that cannot go on. Any thread may call.
#pragma once

#include <exception>
#include <string>

namespace sentinel {

class Voice {
 public:
  explicit Voice(bool quiet) : quiet_(quiet) {}
  void say(const std::string&) const;

 private:
  bool quiet_;
};

// Training stops before a wrong number exists: says why, and ends the process with 125.
[[noreturn]] void refuse(const std::exception&);

}  // namespace sentinel
