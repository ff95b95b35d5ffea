// The views as text, JSON, CSV and Perfetto's trace: one function per view and format.
#pragma once

#include <iosfwd>

#include "report/view/scene.h"

namespace sentinel {

void summary_text(const Scene&, std::ostream&);
void summary_json(const Scene&, std::ostream&);
void heatmap_text(const Scene&, std::ostream&);
void heatmap_json(const Scene&, std::ostream&);
void heatmap_csv(const Scene&, std::ostream&);
void tensors_text(const Scene&, std::ostream&);
void tensors_json(const Scene&, std::ostream&);
void tensors_csv(const Scene&, std::ostream&);
void layers_text(const Scene&, std::ostream&);
void layers_json(const Scene&, std::ostream&);
void layers_csv(const Scene&, std::ostream&);
void sharing_text(const Scene&, std::ostream&);
void sharing_json(const Scene&, std::ostream&);
void sharing_csv(const Scene&, std::ostream&);
void perfetto_json(const Scene&, std::ostream&);

}  // namespace sentinel
