// SPDX-License-Identifier: Apache-2.0
// The reporter seam: rendering only, no I/O of its own beyond the stream it is given.
#pragma once

#include <iosfwd>

#include "sentinel/profile.h"

namespace sentinel {

struct RenderStyle {
  bool colour = false;  // ANSI colours; false in a pipe and under NO_COLOR
  int width = 100;      // columns of the terminal
};

class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void render(const Profile&, std::ostream&, const RenderStyle&) = 0;
};

}  // namespace sentinel
