// The pieces of the HTML page. The page is one file: style, script and figures are inlined, and a
// content security policy forbids it to load anything.
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <string_view>

#include "report/json.h"
#include "report/step_view.h"

namespace sentinel {

extern const std::string_view html_style;
extern const std::string_view html_body;
// In this order they are one script: formats; figures; the visible range; drawing; the memory
// curves; tooltips; pointer and keys; tables; the page around them.
extern const std::string_view html_script_formats;
extern const std::string_view html_script_base;
extern const std::string_view html_script_chart;
extern const std::string_view html_script_draw;
extern const std::string_view html_script_memory;
extern const std::string_view html_script_words;
extern const std::string_view html_script_input;
extern const std::string_view html_script_table;
extern const std::string_view html_script_page;

// A page is opened, gets its body, and is closed with its figures and its script, which begins with
// html_script_formats.
void html_open(std::string_view title, std::ostream& out);  // title: a literal of ours
void html_close(const Json& figures, std::initializer_list<std::string_view> scripts,
                std::ostream& out);

// The page of a comparison (report/comparison.h).
extern const std::string_view html_comparison_body;
extern const std::string_view html_script_comparison;  // table, curve, the page around them
extern const std::string_view html_script_strips;      // the memory timelines

// Everything the script of a profile's page reads. Tensors, layers and ops are columns rather than
// objects, which keeps 10 000 tensors at about one megabyte.
Json html_figures(const StepView& step);

}  // namespace sentinel
