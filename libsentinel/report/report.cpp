// Finds the reporter of a view and a format, and names those there are.
#include "report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "report/html/renderers.h"
#include "report/text/renderers.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

struct Entry {
  std::string_view view, format;
  void (*render)(const Scene&, std::ostream&);
};

constexpr Entry entries[] = {
    {"summary", "text", summary_text},      {"summary", "json", summary_json},
    {"summary", "html", summary_html},      {"summary", "perfetto", perfetto_json},
    {"heatmap", "text", heatmap_text},      {"heatmap", "json", heatmap_json},
    {"heatmap", "csv", heatmap_csv},        {"heatmap", "html", heatmap_html},
    {"heatmap", "perfetto", perfetto_json}, {"tensors", "text", tensors_text},
    {"tensors", "json", tensors_json},      {"tensors", "csv", tensors_csv},
    {"tensors", "html", tensors_html},      {"layers", "text", layers_text},
    {"layers", "json", layers_json},        {"layers", "csv", layers_csv},
    {"layers", "html", layers_html},        {"layers", "perfetto", perfetto_json},
    {"sharing", "text", sharing_text},      {"sharing", "json", sharing_json},
    {"sharing", "csv", sharing_csv},
};

constexpr std::array<std::string_view, 4> sort_keys{"first-use", "hotness", "bytes", "lifetime"};

class EntryReporter final : public Reporter {
 public:
  EntryReporter(const Entry& entry, ReportOptions options)
      : entry_(entry), options_(std::move(options)) {}
  void render(const Profile& profile, std::ostream& out, const RenderStyle& style) override {
    const StepView step(profile);
    entry_.render({step, options_, style}, out);
  }

 private:
  const Entry& entry_;
  ReportOptions options_;
};

}  // namespace

SortKey parse_sort_key(std::string_view text) {
  const auto at = std::ranges::find(sort_keys, text);
  if (at == sort_keys.end())
    throw Error(
        fmt::format("\"{}\" is not an order; sort by {}", text, fmt::join(sort_keys, ", ")));
  return static_cast<SortKey>(at - sort_keys.begin());
}

std::unique_ptr<Reporter> make_reporter(std::string_view view, std::string_view format,
                                        ReportOptions options) {
  for (const auto& entry : entries)
    if (entry.view == view && entry.format == format)
      return std::make_unique<EntryReporter>(entry, std::move(options));
  const auto formats = report_formats(view);
  if (formats.empty())
    throw Error(fmt::format("there is no report \"{}\"; there are {}", view,
                            fmt::join(report_views(), ", ")));
  throw Error(fmt::format("the {} report has no format \"{}\"; it has {}", view, format,
                          fmt::join(formats, ", ")));
}

std::vector<std::string_view> report_views() {
  std::vector<std::string_view> views;
  for (const auto& entry : entries)
    if (views.empty() || views.back() != entry.view) views.push_back(entry.view);
  return views;
}

std::vector<std::string_view> report_formats(std::string_view view) {
  std::vector<std::string_view> formats;
  for (const auto& entry : entries)
    if (entry.view == view) formats.push_back(entry.format);
  return formats;
}

}  // namespace sentinel
