// The pieces of the HTML page. The page is one file: style, script and figures are inlined, and a
// content security policy forbids it to load anything.
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <string_view>

#include "report/text/json.h"
#include "report/view/step_view.h"

namespace sentinel {

// A page is opened, gets its body, and is closed with its figures and its script, whose parts lie
// beside this file and are embedded; formats.js comes first.
void html_open(std::string_view title, std::ostream& out);  // title: a literal of ours
void html_close(const Json& figures, std::initializer_list<std::string_view> scripts,
                std::ostream& out);

// Everything the script of a profile's page reads. Tensors, layers and ops are columns rather than
// objects, which keeps 10 000 tensors at about one megabyte.
Json html_figures(const StepView& step);

}  // namespace sentinel
