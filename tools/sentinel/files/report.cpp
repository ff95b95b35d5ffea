// `sentinel report`: renders a view of a profile, what has changed between two, or several beside
// one another.
#include "report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <memory>
#include <sstream>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "report/view/difference.h"
#include "report/view/side_by_side.h"
#include "sentinel/error.h"
#include "trace/read_any.h"

namespace sentinel::cli {
namespace {

constexpr std::uint64_t kUnset = 0xffff'ffff;  // that no user can give

struct Settings {
  std::string file, view = "summary", format = "text", sort = "hotness", before, output;
  std::vector<std::string> more;  // what follows the file: a view, or further files
  std::uint64_t rows = kUnset;
};

std::unique_ptr<Reporter> reporter_of(const Settings& settings) {
  try {
    ReportOptions options{.sort = parse_sort_key(settings.sort),
                          .table_rows = settings.rows == kUnset ? 0 : settings.rows,
                          .file = settings.file};
    if (settings.rows != 0 && settings.rows != kUnset) options.heatmap_rows = settings.rows;
    return make_reporter(settings.view, settings.format, options);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

// Of several profiles there is one view.
int report_side_by_side(const Settings& settings) {
  const bool json = settings.format == "json";
  if (!json && settings.format != "text")
    throw UsageError(fmt::format("several profiles have no format \"{}\"; they have text, json",
                                 settings.format));
  std::vector<std::string> files{settings.file};
  files.insert(files.end(), settings.more.begin(), settings.more.end());
  std::list<Profile> profiles;
  std::list<StepView> views;
  std::vector<const StepView*> steps;
  for (const auto& file : files) {
    if (std::ranges::count(report_views(), file) && !std::filesystem::exists(file))
      throw UsageError(fmt::format("several profiles have one view: leave out \"{}\"", file));
    steps.push_back(&views.emplace_back(profiles.emplace_back(read_any(file))));
  }
  const SideBySide all(std::move(files), std::move(steps));
  std::ostringstream text;
  if (json)
    side_by_side_json(all, text);
  else
    side_by_side_text(all, settings.output.empty() ? terminal_style() : RenderStyle{}, text);
  return print_to(settings.output, text.str());
}

int report(const Settings& settings) {
  const auto reporter = reporter_of(settings);
  const auto profile = read_any(settings.file);
  std::ostringstream text;
  reporter->render(profile, text, settings.output.empty() ? terminal_style() : RenderStyle{});
  return print_to(settings.output, text.str());
}

// Of a difference there is one view.
auto difference_writer(const Settings& settings) {
  if (!settings.more.empty())
    throw UsageError("--diff shows one view: name none beside the two files");
  if (settings.format == "text") return difference_text;
  if (settings.format == "json") return difference_json;
  if (settings.format == "html") return difference_html;
  throw UsageError(
      fmt::format("a difference has no format \"{}\"; it has text, json, html", settings.format));
}

int report_difference(const Settings& settings) {
  const auto write = difference_writer(settings);
  const auto before = read_any(settings.before), after = read_any(settings.file);
  const Difference difference(StepView{before}, StepView{after});
  std::ostringstream text;
  DifferenceScene scene{.difference = difference,
                        .before = settings.before,
                        .after = settings.file,
                        .style = settings.output.empty() ? terminal_style() : RenderStyle{}};
  if (settings.rows != kUnset) scene.rows = settings.rows;
  write(scene, text);
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
      {.names = "VIEW",
       .value = "VIEW",
       .meaning = fmt::format("what to show ({}); or further profiles, to be shown side by side",
                              fmt::join(views(), ", ")),
       .into = &s->more,
       .words = views()},
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
      {"--diff", "BEFORE", "what has changed since that profile: --diff BEFORE AFTER", &s->before},
      written({"-o,--output", "FILE", "where to; stdout if absent", &s->output}),
  };
  return [s] {
    const bool view = s->more.size() == 1 && std::ranges::count(report_views(), s->more.front());
    if (view) s->view = s->more.front();
    if (!view && s->more.size() == 1 && !std::filesystem::exists(s->more.front()))
      throw UsageError(fmt::format("there is no view and no profile \"{}\"; views are {}",
                                   s->more.front(), fmt::join(views(), ", ")));
    if (!view && !s->more.empty() && s->before.empty()) return report_side_by_side(*s);
    return s->before.empty() ? report(*s) : report_difference(*s);
  };
}

}  // namespace sentinel::cli
