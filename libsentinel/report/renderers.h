// What make_reporter's table points to: one function per view and format.
#pragma once

#include <iosfwd>

#include "report/report.h"
#include "report/step_view.h"

namespace sentinel {

struct Scene {
  const StepView& step;
  const ReportOptions& options;
  const RenderStyle& style;
};

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

// One page for all views; it opens at the section that was asked for.
void summary_html(const Scene&, std::ostream&);
void heatmap_html(const Scene&, std::ostream&);
void tensors_html(const Scene&, std::ostream&);
void layers_html(const Scene&, std::ostream&);

}  // namespace sentinel
