// Computes the paper's three observations, and puts them into words.
#include "report/view/observations.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace sentinel {
namespace {

std::string share(double part, double whole) {
  return whole > 0 ? print_percent(part / whole) : "-";
}

std::string tensors(std::size_t count) {
  return fmt::format("{} tensor{}", count, count == 1 ? "" : "s");
}

ObservationTable first(const StepView& step, const Observations& seen) {
  const auto count = static_cast<double>(seen.short_lived);
  ObservationTable table{.title = "Observation 1: many tensors are small and live shortly"};
  table.figures = {
      {"live at most one layer", share(count, static_cast<double>(seen.tensors)),
       fmt::format("{} of {}", seen.short_lived, tensors(seen.tensors)), "92 %"},
      {"of these, smaller than a page", share(static_cast<double>(seen.short_lived_small), count),
       fmt::format("{}, pages of {}", tensors(seen.short_lived_small), print_bytes(step.page())),
       "98 %"},
      {"peak bytes of the short-lived", print_bytes(seen.short_lived_peak_bytes), "",
       "a few GB at most"}};
  if (seen.foreign > 0)
    table.note =
        fmt::format("Left out: {} in memory that is not Sentinel's.", tensors(seen.foreign));
  return table;
}

Figure band_figure(const Observations& seen, HeatBand band, std::string label, std::string paper) {
  const auto& total = seen.bands[static_cast<std::size_t>(band)];
  return {std::move(label),
          share(static_cast<double>(total.bytes), static_cast<double>(seen.bytes)),
          fmt::format("of bytes: {} in {}", print_bytes(total.bytes), tensors(total.tensors)),
          std::move(paper)};
}

ObservationTable second(const StepView& step, const Observations& seen) {
  ObservationTable table{.title = "Observation 2: hot and cold are spread unevenly"};
  const std::string unit = step.counted ? " accesses per page" : " ops that name it";
  table.figures = {band_figure(seen, HeatBand::hot, "over 100" + unit, "0.2 % (4 MB)"),
                   band_figure(seen, HeatBand::warm, "10 to 100", ""),
                   band_figure(seen, HeatBand::cold, "1 to 10", "54 % below 10 (907 MB)"),
                   band_figure(seen, HeatBand::none, "none", "")};
  if (!step.counted)
    table.note =
        "Memory accesses were not counted: a tensor counts once for each op that names it.";
  return table;
}

ObservationTable third(const Observations& seen) {
  ObservationTable table{.title = "Observation 3: pages hide what tensors show"};
  const auto& sharing = seen.sharing;
  if (!sharing.absent_reason.empty()) {
    table.note = "Left out: " + sharing.absent_reason + ".";
    return table;
  }
  constexpr auto cold = static_cast<std::size_t>(HeatBand::cold);
  table.figures = {
      {"1 to 10 accesses, by tensor", print_bytes(sharing.tensor_bytes[cold]), "of tensors",
       "908 MB"},
      {"1 to 10 accesses, by page", print_bytes(sharing.page_bytes[cold]), "of pages", "764 MB"},
      {"falsely shared", print_bytes(sharing.falsely_shared_bytes), "cold tensors on pages over 10",
       ""},
      {"of these, beside a hot one", print_bytes(sharing.falsely_shared_at_once_bytes),
       "with over 10, alive at once", ""},
      {"pages shared",
       share(static_cast<double>(sharing.shared_pages), static_cast<double>(sharing.placed_pages)),
       fmt::format("{} of {} placed", sharing.shared_pages, sharing.placed_pages), ""}};
  return table;
}

}  // namespace

Observations observe(const StepView& step) {
  Observations seen;
  std::vector<bool> short_lived(step.profile.tensors.size());
  for (std::size_t t = 0; t < short_lived.size(); ++t) {
    const auto& tensor = step.profile.tensors[t];
    if (tensor.foreign) {
      seen.foreign += 1;
      continue;
    }
    short_lived[t] = !step.profile.ops.empty() && step.lifetimes[t].short_lived();
    seen.tensors += 1;
    seen.bytes += tensor.bytes;
    seen.short_lived += short_lived[t];
    seen.short_lived_small += short_lived[t] && tensor.bytes < step.page();
    auto& band = seen.bands[static_cast<std::size_t>(heat_band(step.counts[t].hotness))];
    band.tensors += 1;
    band.bytes += tensor.bytes;
  }
  for (const auto bytes : live_bytes_of(step, short_lived))
    seen.short_lived_peak_bytes = std::max(seen.short_lived_peak_bytes, bytes);
  seen.sharing = sharing_of(step);
  return seen;
}

std::vector<ObservationTable> in_words(const StepView& step, const Observations& seen) {
  return {first(step, seen), second(step, seen), third(seen)};
}

}  // namespace sentinel
