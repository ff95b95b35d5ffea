// Writes the page of a comparison: its table, and a strip of lanes for each policy.
#include "report/view/comparison.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "base/units.h"
#include "embedded/sentinel_report_html.h"
#include "report/html/parts.h"
#include "report/text/json.h"
#include "sentinel/analysis.h"

namespace sentinel {
namespace {

// Curves are whole numbers up to this, which keeps 20 policies at half a megabyte.
constexpr double kFull = 1000;

Json scaled(const std::vector<double>& values, double full) {
  Json list = Json::array();
  for (const double value : values)
    list.push_back(
        static_cast<int>(full > 0 ? std::lround(std::clamp(value / full, 0.0, 1.0) * kFull) : 0));
  return list;
}

// What a lane could have moved in one part, or the most that it did where no limit is known.
double full_lane(const Lane& lane, const std::vector<double>& moved, double part_us) {
  if (lane.bw > 0) return lane.bw / 1e6 * part_us;
  return moved.empty() ? 0 : *std::ranges::max_element(moved);
}

Json strip_json(const Strip& strip, const std::vector<Lane>& lanes, double step_us) {
  const auto parts = strip.fast_bytes.size();
  if (parts == 0) return nullptr;
  const double part_us = step_us / static_cast<double>(parts);
  std::vector<double> held(strip.fast_bytes.begin(), strip.fast_bytes.end());
  const double most = *std::ranges::max_element(held);
  Json moved = Json::array();
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (strip.moved[i].empty()) continue;
    const double full = full_lane(lanes[i], strip.moved[i], part_us);
    moved.push_back(
        {{"lane", i}, {"full_bps", full / part_us * 1e6}, {"use", scaled(strip.moved[i], full)}});
  }
  return {{"most", most},
          {"held", scaled(held, most)},
          {"stalled", scaled(strip.stalled, 1)},
          {"moved", moved}};
}

Json moved_json(const sim::SimResult& result) {
  Json list = Json::array();
  for (const auto& t : result.traffic)
    list.push_back({{"from", t.from}, {"to", t.to}, {"bytes", t.bytes}});
  return list;
}

Json row_json(const ComparisonRow& row, const std::vector<Lane>& lanes) {
  Json json{{"policy", row.policy},
            {"variant", row.variant},
            {"at", row.at},
            {"fast_bytes", row.fast_bytes},
            {"reason", row.reason}};
  if (row.result == nullptr) return json;
  const auto& r = *row.result;
  json["result"] = {{"step_us", r.step_us},
                    {"throughput", r.timed() ? Json(r.normalized_throughput()) : Json(nullptr)},
                    {"stall_us", r.stall_us},
                    {"recompute_us", r.recompute_us},
                    {"peak", r.peak_fast_bytes},
                    {"faults", r.demand_faults},
                    {"plan_us", 1e3 * row.plan_ms},
                    {"bound_us", row.lower_bound_us},
                    {"swap_bound_us", row.swap_lower_bound_us},
                    {"moved", moved_json(r)}};
  if (row.strip != nullptr) json["strip"] = strip_json(*row.strip, lanes, r.step_us);
  return json;
}

Json figures_of(const Comparison& c) {
  const auto lanes = lanes_of(c.machine);
  Json names = Json::array(), rows = Json::array();
  for (const auto& lane : lanes)
    names.push_back({{"name", lane.name}, {"inward", lane.inward}, {"bps", lane.bw}});
  for (const auto& row : c.rows) rows.push_back(row_json(row, lanes));
  return {{"model", c.profile.meta.model.empty() ? "the step" : c.profile.meta.model},
          {"batch", c.profile.meta.batch},
          {"machine", c.machine.name},
          {"source", c.machine.source},
          {"fast_bytes", c.fast_bytes},
          {"peak_bytes", peak_live_bytes(c.profile)},
          {"ops", c.profile.ops.size()},
          {"tensors", c.profile.tensors.size()},
          {"ideal_us", ideal_us(c.profile)},
          {"swept", c.swept},
          {"full", kFull},
          {"lanes", names},
          {"rows", rows}};
}

}  // namespace

void comparison_html(const Comparison& comparison, std::ostream& out) {
  html_open("Sentinel comparison", out);
  out << embedded::comparison_body_html;
  html_close(
      figures_of(comparison),
      {embedded::formats_js, embedded::strips_js, embedded::curve_js, embedded::comparison_js},
      out);
}

}  // namespace sentinel
