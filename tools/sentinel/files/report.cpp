// `sentinel report`: renders a view of a profile.
#include "report/report.h"

#include <memory>
#include <sstream>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "sentinel/error.h"
#include "trace/read_any.h"

namespace sentinel::cli {
namespace {

struct Settings {
  std::string file, view = "summary", format = "text", sort = "hotness", output;
  std::uint64_t rows = 0;
};

std::unique_ptr<Reporter> reporter_of(const Settings& settings) {
  try {
    ReportOptions options{
        .sort = parse_sort_key(settings.sort), .table_rows = settings.rows, .file = settings.file};
    if (settings.rows != 0) options.heatmap_rows = settings.rows;
    return make_reporter(settings.view, settings.format, options);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

int report(const Settings& settings) {
  const auto reporter = reporter_of(settings);
  const auto profile = read_any(settings.file);
  std::ostringstream text;
  reporter->render(profile, text, settings.output.empty() ? terminal_style() : RenderStyle{});
  return print_to(settings.output, text.str());
}

std::vector<std::string> views() {
  const auto names = report_views();
  return {names.begin(), names.end()};
}

}  // namespace

Action declare_report(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      {"FILE", "FILE", "a profile, or a tensor trace", &s->file, true},
      {"VIEW", "VIEW", "what to show", &s->view, false, views()},
      {"--format",
       "FORMAT",
       "how; not every view has every format",
       &s->format,
       false,
       {"text", "json", "csv", "html", "perfetto"}},
      {"--sort",
       "ORDER",
       "of tables",
       &s->sort,
       false,
       {"first-use", "hotness", "bytes", "lifetime"}},
      {"--rows", "N", "at most so many rows; 0 for all", &s->rows},
      written({"-o,--output", "FILE", "where to; stdout if absent", &s->output}),
  };
  return [s] { return report(*s); };
}

}  // namespace sentinel::cli
