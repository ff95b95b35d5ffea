// Policies compared on one machine, as a page: their table, and above one another what each held
// in fast memory over its steady step, what crossed which link, and where it stalled.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "sentinel/machine.h"
#include "sentinel/profile.h"
#include "sim/simulator.h"

namespace sentinel {

// One direction of a link; where no link joins two tiers, the way between them.
struct Lane {
  std::string name;
  double bw = 0;        // bytes per second; 0: no limit is known
  bool inward = false;  // towards faster memory (for the port of a middle tier: by its first way)
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ways;  // (from, to) tiers whose bytes cross
};
std::vector<Lane> lanes_of(const Machine&);

// A timeline in equal parts of its step.
struct Strip {
  std::vector<std::uint64_t> fast_bytes;   // the most that was held during each part
  std::vector<double> stalled;             // share of each part in which an op waited
  std::vector<std::vector<double>> moved;  // by lane: bytes in each part; empty: none at all
};
// A transfer's bytes are spread evenly over its time, as its rate is not recorded.
Strip strip_of(const sim::Timeline&, double step_us, const std::vector<Lane>&, std::size_t parts);

struct ComparisonRow {
  std::string policy;
  std::string variant;  // "fast=20%", "without eager-prefetch"
  double at = 0;        // the value that a sweep has here, in its own unit
  std::uint64_t fast_bytes = 0;
  const sim::SimResult* result = nullptr;  // null: not feasible
  std::string reason;                      // then
  double plan_ms = 0, lower_bound_us = 0, swap_lower_bound_us = 0;
  const Strip* strip = nullptr;  // null: no timeline
};

struct Comparison {
  const Profile& profile;
  const Machine& machine;
  std::uint64_t fast_bytes = 0;
  std::string swept;  // "fast", "host", "ssd-bw", "interval"; empty: nothing is
  std::vector<ComparisonRow> rows;
};

// Complete in itself: loads nothing, names reach it only as JSON that the script shows as text.
void comparison_html(const Comparison&, std::ostream&);

}  // namespace sentinel
