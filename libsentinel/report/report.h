// Every report by its name. A reporter renders a profile into the stream it is given and touches
// neither files nor terminals; whether colours are wanted is the caller's to decide.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "report/view/scene.h"
#include "sentinel/reporter.h"

namespace sentinel {

SortKey parse_sort_key(std::string_view text);  // throws Error naming the keys

// Throws Error naming what is supported where `view` has no such `format`.
std::unique_ptr<Reporter> make_reporter(std::string_view view, std::string_view format,
                                        ReportOptions options = {});

// For usage messages and completion, from the same table as make_reporter.
std::vector<std::string_view> report_views();
std::vector<std::string_view> report_formats(std::string_view view);

}  // namespace sentinel
