// `sentinel doctor`: examines this machine area by area, and prints the findings.
#include "host/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/table_rows.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "trace/json.h"

namespace sentinel::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Settings {
  std::string slow;
  bool json = false;
};

struct Area {
  const char *name, *title;
  Findings findings;
};

std::vector<Area> examine(const Settings& s) {
  const char* set = std::getenv("SENTINEL_DIR");
  const auto slow = !s.slow.empty() ? s.slow : set != nullptr && *set != '\0' ? set : "/var/tmp";
  return {{"capture", "Counting and guarding pages", look_at_capture()},
          {"slow_tier", "The slow tier", look_at_slow_tier(slow)},
          {"memory", "Memory", look_at_memory()},
          {"frameworks", "Frameworks", look_at_frameworks()},
          {"hardware", "Other hardware and kernels", look_at_hardware()}};
}

std::string line(const Finding& finding, std::size_t width, bool colour) {
  const char *on = "", *off = "";
  if (colour) on = finding.available ? "\x1b[32m" : "\x1b[31m", off = "\x1b[0m";
  auto text = fmt::format("  {}{}{} {:<{}}  {}\n", on, finding.available ? "✓" : "✗", off,
                          finding.name, width, printable(finding.detail));
  if (!finding.remedy.empty())
    text += fmt::format("{:{}}→ {}\n", "", width + 6, printable(finding.remedy));
  return text;
}

std::string text_of(const std::vector<Area>& areas, bool colour) {
  std::string text;
  std::size_t width = 0;
  for (const auto& area : areas)
    for (const auto& finding : area.findings) width = std::max(width, finding.name.size());
  for (const auto& area : areas) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", area.title);
    for (const auto& finding : area.findings) text += line(finding, width, colour);
  }
  return text + "\nNext\n  sentinel record -- python3 train.py\n";
}

Json json_of(const std::vector<Area>& areas) {
  Json json = Json::object();
  for (const auto& area : areas)
    for (const auto& f : area.findings)
      json[area.name].push_back({{"name", f.name},
                                 {"available", f.available},
                                 {"detail", f.detail},
                                 {"remedy", f.remedy}});
  return json;
}

int doctor(const Settings& s) {
  const auto areas = examine(s);
  return print(s.json ? json_text(json_of(areas), 1) + "\n"
                      : text_of(areas, terminal_style().colour));
}

}  // namespace

Action declare_doctor(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      table_row("SENTINEL_DIR", &s->slow, "$SENTINEL_DIR or /var/tmp", "DIR"),
      {"--json", "", "the findings, for programs", &s->json},
  };
  return [s] { return doctor(*s); };
}

}  // namespace sentinel::cli
