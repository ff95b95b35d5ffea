// Observation 3 on one profile: what counting by page would have said, had the framework placed
// the tensors, against what counting by tensor says. Uses Profile::natural; a tensor without a
// natural address keeps pages of its own.
//
// A page's count is the sum, over the tensors that lie on it at any time of the step, of their
// openings per page. It is an upper bound: openings that fall into one window would merge.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "report/view/step_view.h"

namespace sentinel {

struct SharedPage {
  std::uint64_t page = 0;  // its number: address over page size
  double openings = 0;
  std::vector<TensorId> tensors;  // in order of first use
  std::uint64_t falsely_shared_bytes = 0;
};

struct Sharing {
  std::string absent_reason;                             // not empty: nothing below is known
  std::array<std::uint64_t, heat_bands> tensor_bytes{};  // counted by tensor, sizes as asked for
  std::array<std::uint64_t, heat_bands> page_bytes{};    // counted by page, whole pages
  std::uint64_t placed_pages = 0, shared_pages = 0;      // with a natural address; two or more
  // Bytes of tensors opened at most 10 times a page that lie on pages counted as opened more,
  // and of those the bytes whose page holds at the same time a tensor opened more (the others
  // share it with such a tensor only in turn, or are cold together).
  std::uint64_t falsely_shared_bytes = 0, falsely_shared_at_once_bytes = 0;
  std::vector<SharedPage> pages;  // the shared ones, most falsely shared bytes first
};

Sharing sharing_of(const StepView& step);

}  // namespace sentinel
