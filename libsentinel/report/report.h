// Every report by its name. A reporter renders a profile into the stream it is given and touches
// neither files nor terminals; whether colours are wanted is the caller's to decide.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sentinel/reporter.h"

namespace sentinel {

enum class SortKey : std::uint8_t { first_use, hotness, bytes, lifetime };
SortKey parse_sort_key(std::string_view text);  // throws Error naming the keys

struct ReportOptions {
  SortKey sort = SortKey::hotness;  // of the tensors table; layers know hotness and bytes only
  std::size_t heatmap_rows = 40;    // text heatmap: more tensors than this are folded
  std::size_t table_rows = 0;       // text tables: at most so many rows, 0 for all
  std::string file = "FILE";        // the profile's file, for the commands named at the end
};

// Throws Error naming what is supported where `view` has no such `format`.
std::unique_ptr<Reporter> make_reporter(std::string_view view, std::string_view format,
                                        ReportOptions options = {});

// For usage messages and completion, from the same table as make_reporter.
std::vector<std::string_view> report_views();
std::vector<std::string_view> report_formats(std::string_view view);

}  // namespace sentinel
