// Whether a forked child, or one that it forked in turn, still lives.
//
// They have mapped a memory file and the parent has not: while anybody may write to the file
// through a mapping, the kernel refuses to seal it. So the answer hangs on no descriptor that a
// child could close, and comes true when the last of them has ended or executed another program.
#pragma once

#include "base/descriptor.h"

namespace sentinel {

class ChildLife {
 public:
  // Before fork(). Nobody lives, and errno says why, where the kernel refuses it: !begun().
  static ChildLife begin() noexcept;
  bool begun() const { return file_.is_open(); }

  // After fork(): in the parent, which lets go of the mapping; in the child, which keeps it.
  void in_parent() noexcept;
  void in_child() noexcept;

  // In the parent: all of them are gone. Where the kernel's answer cannot be had (the program has
  // closed the file), they are taken to live.
  bool over() const noexcept;
  void forget() noexcept;

 private:
  OurFile file_;
  void* mapping_ = nullptr;
};

}  // namespace sentinel
