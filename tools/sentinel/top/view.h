// The screen of `sentinel top`, drawn from what sessions publish. Pure: it knows neither terminal
// nor clock.
#pragma once

#include <cstddef>
#include <vector>

#include "top/canvas.h"
#include "top/sessions.h"

namespace sentinel::cli {

struct View {
  const std::vector<Session>& sessions;
  std::size_t selected = 0;  // of them
  double now_us = 0;         // on the clock of the status
  bool blocks = true;        // the terminal shows block characters; else ASCII
  bool keys = true;          // there are keys to tell of
};

constexpr std::size_t kFewestColumns = 60, kFewestRows = 16;

void draw(Canvas&, const View&);

}  // namespace sentinel::cli
