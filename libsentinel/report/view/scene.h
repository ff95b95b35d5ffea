// A profiled step and how it is to be shown: what each renderer is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "report/view/step_view.h"
#include "sentinel/reporter.h"

namespace sentinel {

enum class SortKey : std::uint8_t { first_use, hotness, bytes, lifetime };

struct ReportOptions {
  SortKey sort = SortKey::hotness;  // of the tensors table; layers know hotness and bytes only
  std::size_t heatmap_rows = 40;    // text heatmap: more tensors than this are folded
  std::size_t table_rows = 0;       // text tables: at most so many rows, 0 for all
  std::string file = "FILE";        // the profile's file, for the commands named at the end
};

struct Scene {
  const StepView& step;
  const ReportOptions& options;
  const RenderStyle& style;
};

}  // namespace sentinel
