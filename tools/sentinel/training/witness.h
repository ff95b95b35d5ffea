// A process that does nothing but receive signals. It tells a signal that was sent to the command
// alone from one that all processes of a group or of a job were sent, as terminals, `kill --
// -GROUP` and Slurm do: the witness has had the latter, too.
//
// It holds no file of ours and ends with us. All signals are to be blocked before it is made, and
// stay so. One thread at a time may ask.
#pragma once

#include <sys/types.h>

#include "base/descriptor.h"

namespace sentinel::cli {

class Witness {
 public:
  enum class Group { ours, own };  // of processes

  explicit Witness(Group);  // throws Error
  ~Witness();
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  // Whether it has had the signal since it was last asked for it. No: also where it is gone.
  bool had(int signal) noexcept;

 private:
  pid_t process_ = -1;
  Descriptor line_;
};

}  // namespace sentinel::cli
