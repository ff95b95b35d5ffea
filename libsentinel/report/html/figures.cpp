// Writes a profile's figures as JSON that the page's scripts draw.
#include "report/view/figures.h"

#include <fmt/format.h>

#include "base/units.h"
#include "report/html/parts.h"
#include "report/view/observations.h"
#include "report/view/provenance.h"

namespace sentinel {
namespace {

Json tile(std::string_view label, std::string_view value, std::string_view note) {
  return {{"label", label}, {"value", value}, {"note", note}};
}

std::string ratio(double part, double whole) {
  return whole > 0 ? print_percent(part / whole) : "–";
}

std::string many(std::size_t count, const char* word) {
  return fmt::format("{} {}{}", grouped(count), word, count == 1 ? "" : "s");
}

Json tiles_of(const StepView& step, const Observations& seen) {
  const auto& meta = step.profile.meta;
  const double ideal = step.profile.ops.empty() ? 0 : ideal_us(step.profile);
  const double us = meta.step_us > 0 ? meta.step_us : ideal;
  const auto& hot = seen.bands[static_cast<std::size_t>(HeatBand::hot)];
  const auto& never = seen.bands[static_cast<std::size_t>(HeatBand::none)];
  const auto bytes = static_cast<double>(seen.bytes);
  Json tiles = Json::array();
  tiles.push_back(tile("Step", us > 0 ? print_us(us) : "–",
                       meta.step_us > 0 ? "a normal step" : "sum of op times"));
  tiles.push_back(
      tile("Peak live memory", print_bytes(step.peak_live()),
           step.live.empty() ? "" : fmt::format("at op {}", grouped(step.peak_op().index()))));
  tiles.push_back(
      tile("Tensors", grouped(step.profile.tensors.size()),
           many(step.profile.ops.size(), "op") + ", " + many(step.layers.size(), "layer")));
  tiles.push_back(
      tile("Short-lived tensors",
           ratio(static_cast<double>(seen.short_lived), static_cast<double>(seen.tensors)),
           fmt::format("of tensors; peak {}", print_bytes(seen.short_lived_peak_bytes))));
  tiles.push_back(
      tile("Hot bytes", ratio(static_cast<double>(hot.bytes), bytes),
           fmt::format("of bytes: {} {}", print_bytes(hot.bytes),
                       step.counted ? "over 100 accesses per page" : "named by over 100 ops")));
  tiles.push_back(tile(step.counted ? "Never accessed" : "Named by no op",
                       ratio(static_cast<double>(never.bytes), bytes),
                       fmt::format("of bytes: {}", print_bytes(never.bytes))));
  return tiles;
}

Json observations_of(const StepView& step, const Observations& seen) {
  Json tables = Json::array();
  for (const auto& table : in_words(step, seen)) {
    Json figures = Json::array();
    for (const auto& f : table.figures)
      figures.push_back({f.label, f.value, f.detail, f.reference});
    tables.push_back({{"title", table.title}, {"note", table.note}, {"figures", figures}});
  }
  return tables;
}

Json tensors_of(const StepView& step) {
  Json columns;
  for (const char* name : {"name", "bytes", "kind", "first", "last", "reads", "writes", "hotness",
                           "stride", "flags", "cells"})
    columns[name] = Json::array();
  for (std::size_t t = 0; t < step.profile.tensors.size(); ++t) {
    const auto& tensor = step.profile.tensors[t];
    const auto& life = step.lifetimes[t];
    columns["name"].push_back(tensor.name);
    columns["bytes"].push_back(tensor.bytes);
    columns["kind"].push_back(static_cast<int>(tensor.kind));
    columns["first"].push_back(life.first_layer.value);
    columns["last"].push_back(life.last_layer.value);
    columns["reads"].push_back(step.counts[t].reads);
    columns["writes"].push_back(step.counts[t].writes);
    columns["hotness"].push_back(step.counts[t].hotness);
    columns["stride"].push_back(tensor.sample_stride);
    columns["flags"].push_back((life.persistent ? 1 : 0) | (tensor.foreign ? 2 : 0));
    Json cells = Json::array();  // layer, reads, writes, and so on
    for (const auto& cell : step.cells[t])
      for (const std::uint64_t number : {std::uint64_t{cell.layer.value}, cell.reads, cell.writes})
        cells.push_back(number);
    columns["cells"].push_back(std::move(cells));
  }
  return columns;
}

Json layers_of(const StepView& step) {
  Json columns;
  for (const char* name : {"name", "phase", "us", "live", "tensors", "touched", "reads", "writes"})
    columns[name] = Json::array();
  for (std::size_t l = 0; l < step.layers.size(); ++l) {
    const auto& total = step.totals[l];
    columns["name"].push_back(layer_label(step, LayerId(l)));
    columns["phase"].push_back(static_cast<int>(step.layers[l].phase));
    columns["us"].push_back(total.us);
    columns["live"].push_back(total.live_bytes);
    columns["tensors"].push_back(total.tensors);
    columns["touched"].push_back(total.touched_bytes);
    columns["reads"].push_back(total.reads);
    columns["writes"].push_back(total.writes);
  }
  return columns;
}

Json ops_of(const StepView& step) {
  Json columns = {{"live", step.live}, {"hot", step.hot_live}, {"need", step.working_set}};
  for (const char* name : {"name", "layer", "us", "phase"}) columns[name] = Json::array();
  for (const auto& op : step.profile.ops) {
    columns["name"].push_back(op.name);
    columns["layer"].push_back(op.layer.value);
    columns["us"].push_back(op.us);
    columns["phase"].push_back(static_cast<int>(op.phase));
  }
  return columns;
}

}  // namespace

Json html_figures(const StepView& step) {
  const auto seen = observe(step);
  Json facts = Json::array();
  for (const auto& fact : provenance(step)) facts.push_back({fact.label, fact.value});
  return {{"partial", partial_notice(step)},
          {"facts", facts},
          {"counted", step.counted},
          {"page", step.page()},
          {"tiles", tiles_of(step, seen)},
          {"observations", observations_of(step, seen)},
          {"tensors", tensors_of(step)},
          {"layers", layers_of(step)},
          {"ops", ops_of(step)}};
}

}  // namespace sentinel
