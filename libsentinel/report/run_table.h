// The comparison that a run ends with: plain framework, Sentinel unlimited, Sentinel at a budget.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>

namespace sentinel {

struct RunRow {
  std::string label;  // "plain PyTorch", "Sentinel unlimited", "Sentinel at 20 %"
  std::optional<double> step_ms;
  std::optional<std::uint64_t> peak_bytes;
  std::string loss;                    // as printed by the program; compared as text
  std::optional<double> predicted_ms;  // by the plan or the simulator
};

// Absent figures print as "-". A loss that differs from the first row's is marked; a line below
// the table says whether all are equal.
void print_run_table(std::span<const RunRow> rows, std::ostream& out);

}  // namespace sentinel
