// Writes a profile's summary as text and as JSON.
#include <fmt/format.h>

#include <ostream>

#include "base/units.h"
#include "report/text/json.h"
#include "report/text/renderers.h"
#include "report/text/text.h"
#include "report/view/observations.h"
#include "report/view/provenance.h"

namespace sentinel {
namespace {

constexpr auto paper =
    "* ResNet-32 in the Sentinel paper (HPCA 2021, section III-B), beside this model's figures";

void print_facts(const Scene& scene, std::ostream& out) {
  const auto room = static_cast<std::size_t>(std::max(scene.style.width, 40)) - 13;
  for (const auto& fact : provenance(scene.step)) {
    auto label = fact.label;
    for (const auto& line : wrapped(printable(fact.value), room)) {
      out << "  " << pad(label, 11) << line << '\n';
      label.clear();
    }
  }
}

void print_table(const Scene& scene, const ObservationTable& table, std::ostream& out) {
  const bool referenced = !table.figures.empty();
  out << '\n'
      << bold(table.title, scene.style.colour)
      << (referenced
              ? std::string(80 - std::min<std::size_t>(80, table.title.size()), ' ') + "ResNet-32 *"
              : "")
      << '\n';
  for (const auto& figure : table.figures) {
    const auto left = "  " + pad(figure.label, 30) + lead(figure.value, 9) + "  " +
                      pad(figure.detail, 36) + " " + figure.reference;
    out << left.substr(0, left.find_last_not_of(' ') + 1) << '\n';
  }
  if (!table.note.empty()) out << "  " << table.note << '\n';
}

// An imported trace has no program to run again: its next step is the simulator.
void print_next(const Scene& scene, std::ostream& out) {
  const auto file = printable(scene.options.file);
  const auto& meta = scene.step.profile.meta;
  out << '\n' << bold("Next", scene.style.colour) << '\n';
  out << "  sentinel report " << file << " heatmap --format html > heatmap.html\n";
  if (meta.source == "trace")
    out << "  sentinel simulate " << file << " --machine a100-g10 --policy all\n";
  else
    out << "  sentinel run --fast 20% --profile " << file << " -- "
        << (meta.command.empty() ? "CMD" : printable(meta.command)) << '\n';
}

Json sharing_figures(const Sharing& sharing) {
  if (!sharing.absent_reason.empty()) return {{"absent", sharing.absent_reason}};
  return {{"tensor_bytes_1_10", sharing.tensor_bytes[1]},
          {"page_bytes_1_10", sharing.page_bytes[1]},
          {"falsely_shared_bytes", sharing.falsely_shared_bytes},
          {"falsely_shared_at_once_bytes", sharing.falsely_shared_at_once_bytes},
          {"shared_pages", sharing.shared_pages},
          {"placed_pages", sharing.placed_pages}};
}

Json bands_of(const Observations& seen) {
  constexpr std::string_view names[] = {"none", "1_10", "10_100", "over_100"};
  Json bands = Json::object();
  for (std::size_t i = heat_bands; i-- > 0;)
    bands[std::string(names[i])] = {{"tensors", seen.bands[i].tensors},
                                    {"bytes", seen.bands[i].bytes}};
  return bands;
}

Json meta_of(const StepView& step) {
  const auto& meta = step.profile.meta;
  const auto& m = meta.machine;
  return {{"model", meta.model},
          {"command", meta.command},
          {"framework", meta.framework},
          {"batch", meta.batch},
          {"created", meta.created},
          {"machine",
           {{"hostname", m.hostname},
            {"cpu", m.cpu},
            {"kernel", m.kernel},
            {"cores", m.cores},
            {"memory_bytes", m.memory_bytes},
            {"llc_bytes", m.llc_bytes}}},
          {"counts",
           {{"source", meta.source},
            {"counted", step.counted},
            {"exact", meta.exact},
            {"reads_writes_apart", meta.read_write},
            {"sample_error", meta.sample_error},
            {"window_pages", meta.window_pages},
            {"page_bytes", step.page()}}}};
}

}  // namespace

void summary_text(const Scene& scene, std::ostream& out) {
  if (const auto notice = partial_notice(scene.step); !notice.empty())
    out << bold(printable(notice), scene.style.colour) << "\n\n";
  print_facts(scene, out);
  for (const auto& table : in_words(scene.step, observe(scene.step)))
    print_table(scene, table, out);
  out << '\n' << paper << '\n';
  print_next(scene, out);
}

void summary_json(const Scene& scene, std::ostream& out) {
  const auto& step = scene.step;
  const auto& meta = step.profile.meta;
  const auto seen = observe(step);
  Json json = {{"format", "sentinel-summary"},
               {"version", 1},
               {"complete", meta.complete},
               {"incomplete_reason", meta.incomplete_reason}};
  json.update(meta_of(step));
  json["step_us"] = meta.step_us;
  json["profiled_step_us"] = meta.profiled_step_us;
  json["ideal_us"] = step.profile.ops.empty() ? 0 : ideal_us(step.profile);
  json["peak_live_bytes"] = step.peak_live();
  json["tensors"] = seen.tensors;
  json["foreign_tensors"] = seen.foreign;
  json["ops"] = step.profile.ops.size();
  json["layers"] = step.layers.size();
  json["observation_1"] = {{"short_lived", seen.short_lived},
                           {"short_lived_small", seen.short_lived_small},
                           {"short_lived_peak_bytes", seen.short_lived_peak_bytes}};
  json["observation_2"] = {{"bytes", seen.bytes}, {"bands", bands_of(seen)}};
  json["observation_3"] = sharing_figures(seen.sharing);
  json["paper_resnet32"] = {{"short_lived_share", 0.92},    {"short_lived_small_share", 0.98},
                            {"below_10_page_share", 0.54},  {"over_100_page_share", 0.002},
                            {"tensor_megabytes_1_10", 908}, {"page_megabytes_1_10", 764}};
  write_json(json, out);
}

}  // namespace sentinel
