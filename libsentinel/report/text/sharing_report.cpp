// The sharing view: Observation 3 page by page.
#include <fmt/format.h>

#include <ostream>

#include "base/units.h"
#include "report/text/csv.h"
#include "report/text/json.h"
#include "report/text/renderers.h"
#include "report/text/text.h"
#include "report/view/observations.h"
#include "report/view/provenance.h"

namespace sentinel {
namespace {

std::string names_on(const StepView& step, const SharedPage& page) {
  std::string names;
  for (const auto t : page.tensors) {
    if (columns_of(names) > 200) return names + ", …";
    names += fmt::format("{}{} ({:.4g})", names.empty() ? "" : ", ",
                         step.profile.tensors[t.index()].name, step.counts[t.index()].hotness);
  }
  return printable(names);
}

void print_pages(const Scene& scene, const Sharing& sharing, std::ostream& out) {
  const auto limit = scene.options.table_rows ? scene.options.table_rows : 30;
  const auto width = static_cast<std::size_t>(std::max(scene.style.width, 60));
  Grid grid({Align::left, Align::right, Align::right, Align::left});
  grid.row({"page", "accesses", "falsely shared", "tensors (their own accesses)"});
  grid.rule();
  for (std::size_t i = 0; i < std::min(limit, sharing.pages.size()); ++i) {
    const auto& page = sharing.pages[i];
    grid.row({fmt::format("{:#x}", page.page * scene.step.page()),
              fmt::format("{:.4g}", page.openings), print_bytes(page.falsely_shared_bytes),
              clip(names_on(scene.step, page), width - std::min<std::size_t>(width, 46))});
  }
  grid.print(out, 0, width);
  if (sharing.pages.size() > limit)
    out << fmt::format("… and {} more shared pages\n", sharing.pages.size() - limit);
}

Json page_json(const StepView& step, const SharedPage& page) {
  Json tensors = Json::array();
  for (const auto t : page.tensors)
    tensors.push_back({{"tensor", t.value},
                       {"name", step.profile.tensors[t.index()].name},
                       {"hotness", step.counts[t.index()].hotness}});
  return {{"address", page.page * step.page()},
          {"openings", page.openings},
          {"falsely_shared_bytes", page.falsely_shared_bytes},
          {"tensors", tensors}};
}

}  // namespace

void sharing_text(const Scene& scene, std::ostream& out) {
  const auto seen = observe(scene.step);
  if (const auto notice = partial_notice(scene.step); !notice.empty())
    out << bold(printable(notice), scene.style.colour) << '\n';
  const auto table = in_words(scene.step, seen).back();
  out << bold(table.title, scene.style.colour) << '\n';
  for (const auto& figure : table.figures)
    out << "  " << pad(figure.label, 30) << lead(figure.value, 9) << "  " << figure.detail << '\n';
  if (!table.note.empty()) out << "  " << table.note << '\n';
  if (seen.sharing.pages.empty()) return;
  out << '\n';
  print_pages(scene, seen.sharing, out);
}

void sharing_json(const Scene& scene, std::ostream& out) {
  const auto& step = scene.step;
  const auto sharing = sharing_of(step);
  Json json = {{"format", "sentinel-sharing"}, {"version", 1}, {"page_bytes", step.page()}};
  if (!sharing.absent_reason.empty()) json["absent"] = sharing.absent_reason;
  const char* bands[] = {"none", "1_10", "10_100", "over_100"};
  for (std::size_t i = 0; i < heat_bands; ++i) {
    json["by_tensor"][bands[i]] = sharing.tensor_bytes[i];
    json["by_page"][bands[i]] = sharing.page_bytes[i];
  }
  json["falsely_shared_bytes"] = sharing.falsely_shared_bytes;
  json["falsely_shared_at_once_bytes"] = sharing.falsely_shared_at_once_bytes;
  json["placed_pages"] = sharing.placed_pages;
  json["pages"] = Json::array();
  for (const auto& page : sharing.pages) json["pages"].push_back(page_json(step, page));
  write_json(json, out);
}

// One line for each tensor on each shared page.
void sharing_csv(const Scene& scene, std::ostream& out) {
  const auto& step = scene.step;
  out << csv_line({"page_address", "page_openings", "page_falsely_shared_bytes", "tensor", "name",
                   "bytes", "hotness"});
  for (const auto& page : sharing_of(step).pages)
    for (const auto t : page.tensors)
      out << csv_line({fmt::format("{}", page.page * step.page()), fmt::format("{}", page.openings),
                       fmt::format("{}", page.falsely_shared_bytes), fmt::format("{}", t.value),
                       csv_text(step.profile.tensors[t.index()].name),
                       fmt::format("{}", step.profile.tensors[t.index()].bytes),
                       fmt::format("{}", step.counts[t.index()].hotness)});
}

}  // namespace sentinel
