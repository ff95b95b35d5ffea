// The pieces of the HTML page. The page is one file: style, script and figures are inlined, and a
// content security policy forbids it to load anything.
#pragma once

#include <string_view>

#include "report/json.h"
#include "report/step_view.h"

namespace sentinel {

extern const std::string_view html_style;
extern const std::string_view html_body;
// In this order they are one script: figures and formats; the visible range; drawing; the memory
// curves; tooltips; pointer and keys; tables; the page around them.
extern const std::string_view html_script_base;
extern const std::string_view html_script_chart;
extern const std::string_view html_script_draw;
extern const std::string_view html_script_memory;
extern const std::string_view html_script_words;
extern const std::string_view html_script_input;
extern const std::string_view html_script_table;
extern const std::string_view html_script_page;

// Everything the script reads. Tensors, layers and ops are columns rather than objects, which
// keeps 10 000 tensors at about one megabyte.
Json html_figures(const StepView& step);

}  // namespace sentinel
