// One page for all views; it opens at the section that was asked for.
#pragma once

#include <iosfwd>

#include "report/view/scene.h"

namespace sentinel {

void summary_html(const Scene&, std::ostream&);
void heatmap_html(const Scene&, std::ostream&);
void tensors_html(const Scene&, std::ostream&);
void layers_html(const Scene&, std::ostream&);

}  // namespace sentinel
