// Collects each step's figures, and writes them as JSON and as a table.
#include "runtime/limit/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/output.h"
#include "base/units.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "trace/json.h"

namespace sentinel {

StepRow& Summary::step_ended(const char* phase, const EngineCounters& now) {
  const auto end = Clock::now();
  const std::chrono::duration<double, std::milli> ms = end - std::exchange(began_.at, end);
  const auto before = std::exchange(began_.counters, now);
  steps.push_back({.step = static_cast<std::uint32_t>(steps.size()),
                   .ms = ms.count(),
                   .phase = phase,
                   .demand_faults = now.demand_faults - before.demand_faults,
                   .promoted_bytes = now.promoted_bytes - before.promoted_bytes,
                   .demoted_bytes = now.demoted_bytes - before.demoted_bytes,
                   .unwritten_bytes = now.unwritten_bytes - before.unwritten_bytes,
                   .stall_ms = (now.stall_us - before.stall_us) / 1e3,
                   .checksum_ms = (now.checksum_us - before.checksum_us) / 1e3,
                   .limit_bytes = fast_limit_bytes,
                   .reading = now.reading - before.reading,
                   .writing = now.writing - before.writing});
  if (at_first_steady_.all == 0 && steps.back().phase == "steady")
    at_first_steady_ = processor_ticks();
  return steps.back();
}

void Summary::no_step(Clock::time_point since) {
  const auto took = Clock::now() - since;
  planning_ms += std::chrono::duration<double, std::milli>(took).count();
  began_.at += took;
}

namespace {

template <class Of>
double steady_median(const std::vector<StepRow>& steps, Of of) {
  std::vector<double> values;
  for (const auto& row : steps)
    if (row.phase == "steady") values.push_back(of(row));
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

double Summary::steady_ms() const {
  return steady_median(steps, [](const StepRow& row) { return row.ms; });
}

double Summary::stolen() const {
  return at_first_steady_.all > 0 ? stolen_between(at_first_steady_, processor_ticks()) : 0;
}

double Summary::steady_written_bytes() const {
  if (tiers && tiers->below.empty()) return 0;
  return steady_median(steps, [this](const StepRow& row) {
    return static_cast<double>(tiers ? row.writing.bytes : row.demoted_bytes);
  });
}

double Summary::drive_days() const {
  constexpr double kMsADay = 24 * 3600 * 1e3;
  const double written = steady_written_bytes();
  const double rated = static_cast<double>(drives.count * drives.rated_tb) * 1e12;
  return written > 0 ? rated / written * steady_ms() / kMsADay : 0;
}

void Summary::outgrown(const Profile& profile, const Plan& plan) {
  peak_unlimited_bytes = std::max(peak_unlimited_bytes, peak_live_bytes(profile));
  streamed_ops = std::max<std::uint64_t>(streamed_ops, plan.streamed_ops.size());
}

void Summary::planned(const Profile& profile, const Plan& plan) {
  outgrown(profile, plan);
  if (plans++ == 0) exchanged(profile, plan);
}

void Summary::exchanged(const Profile& profile, const Plan& plan) {
  policy = plan.policy;
  foretold = {.us = plan.predicted_step_us,
              .in_bytes = plan.predicted_in_bytes,
              .out_bytes = plan.predicted_out_bytes};
  for (const auto& move : plan.moves)
    if (move.direction != Direction::copy)
      (move.direction == Direction::promote ? foretold.promoted_bytes : foretold.demoted_bytes) +=
          round_up(profile.tensors[move.tensor.index()].bytes, 4_KiB);
}

void Summary::forget_plans() {
  peak_unlimited_bytes = streamed_ops = plans = 0;
  foretold = {};
}

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Flow& flow) { return {{"bytes", flow.bytes}, {"busy_ms", flow.busy_us / 1e3}}; }

Json json_of(const StepRow& row) {
  Json json{{"step", row.step},
            {"ms", row.ms},
            {"phase", row.phase},
            {"demand_faults", row.demand_faults},
            {"promoted_bytes", row.promoted_bytes},
            {"demoted_bytes", row.demoted_bytes},
            {"stall_ms", row.stall_ms},
            {"limit_bytes", row.limit_bytes}};
  if (row.unwritten_bytes != 0) json["unwritten_bytes"] = row.unwritten_bytes;
  if (row.checksum_ms > 0) json["checksum_ms"] = row.checksum_ms;
  if (row.discarded_bytes != 0 || row.replays != 0)
    json.update({{"replays", row.replays},
                 {"replayed_bytes", row.replayed_bytes},
                 {"discarded_bytes", row.discarded_bytes},
                 {"replay_ms", row.replay_ms}});
  if (row.reading.bytes != 0) json["reading"] = json_of(row.reading);
  if (row.writing.bytes != 0) json["writing"] = json_of(row.writing);
  if (row.accesses > 0) json["fast_access_share"] = row.fast_accesses / row.accesses;
  for (const auto& [node, bytes] : row.nodes) json["nodes"][fmt::format("node{}", node)] = bytes;
  if (row.openings) {
    json["openings"] = {{"unplaced", row.openings->unplaced}};
    for (std::size_t node = 0; node < row.openings->node.size(); ++node)
      if (const auto count = row.openings->node[node]; count != 0)
        json["openings"][fmt::format("node{}", node)] = count;
  }
  return json;
}

// Only intervals for which anything was moved.
Json json_of(const std::vector<std::vector<IntervalRow>>& plans) {
  auto json = Json::array();
  for (std::size_t plan = 0; plan < plans.size(); ++plan)
    for (std::size_t i = 0; i < plans[plan].size(); ++i) {
      const auto& row = plans[plan][i];
      if (row.cases == std::array<std::uint64_t, 3>{}) continue;
      Json entry{{"plan", plan},
                 {"interval", i},
                 {"case1", row.cases[0]},
                 {"case2", row.cases[1]},
                 {"case3", row.cases[2]}};
      if (row.tried)
        entry.update({{"chosen", row.chosen == Choice::wait ? "wait" : "leave"},
                      {"wait_ms", row.wait_us / 1e3},
                      {"leave_ms", row.leave_us / 1e3}});
      json.push_back(std::move(entry));
    }
  return json;
}

Json json_of(const ReplayRow::NamedOp& op) { return {{"op", op.op}, {"name", op.name}}; }

Json json_of(const ReplayRow& row) {
  auto tensors = Json::array(), replays = Json::array();
  for (const auto& lost : row.tensors)
    tensors.push_back({{"tensor", lost.tensor},
                       {"name", lost.name},
                       {"bytes", lost.bytes},
                       {"maker", json_of(lost.maker)}});
  for (const auto& replay : row.replays) replays.push_back(json_of(replay));
  Json json{{"plan", row.plan},
            {"before", json_of(row.before)},
            {"tensors", std::move(tensors)},
            {"replays", std::move(replays)}};
  json.update({{"replay_ms", row.us / 1e3}, {"move_ms", row.move_us / 1e3}, {"steps", row.times}});
  if (row.given_up) json["given_up"] = true;
  if (row.times > 0) json["measured_ms"] = row.step_us() / 1e3;
  return json;
}

Json moves_json(const EngineCounters& counters) {
  Json json;
  for (std::size_t i = 0; i < kMoveCauses.size(); ++i) json[kMoveCauses[i]] = counters.causes[i];
  json["pages_left"] = counters.pages_left;
  return json;
}

}  // namespace

void Summary::write(const std::string& path,
                    const std::vector<std::vector<IntervalRow>>& intervals) const {
  Json json{{"policy", policy},
            {"fast_limit_bytes", fast_limit_bytes},
            {"peak_fast_bytes", peak_fast_bytes},
            {"peak_unlimited_bytes", peak_unlimited_bytes},
            {"streamed_ops", streamed_ops},
            {"plans", plans},
            {"predicted_ms", foretold.us / 1e3},
            {"planned_promoted_bytes", foretold.promoted_bytes},
            {"planned_demoted_bytes", foretold.demoted_bytes},
            {"predicted_in_bytes", foretold.in_bytes},
            {"predicted_out_bytes", foretold.out_bytes},
            {"stolen", stolen()},
            {"planning_ms", planning_ms}};
  if (const double days = drive_days(); days > 0)
    json["wear"] = {
        {"written_bytes_per_step", std::llround(steady_written_bytes())},
        {"written_bytes_per_day",
         std::llround(static_cast<double>(drives.count * drives.rated_tb) * 1e12 / days)},
        {"drives", drives.count},
        {"rated_tb", drives.rated_tb},
        {"drive_days", days}};
  if (tiers) {
    json["tiers"] = {{"fast", tiers->fast}, {"slow", tiers->slow}};
    if (!tiers->below.empty()) json["tiers"]["below"] = tiers->below;
    json["granule_bytes"] = granule_bytes;
    json["moves"] = moves_json(began_.counters);
    json["intervals"] = json_of(intervals);
  }
  const auto& [rows, trials, none] = made_again;
  if (!none.empty()) json["no_replays"] = none;
  if (trials.ops != 0) json["trials"] = {{"ops", trials.ops}, {"refused", trials.refused}};
  for (const auto& row : rows) json["made_again"].push_back(json_of(row));
  json["steps"] = Json::array();
  for (const auto& row : steps) json["steps"].push_back(json_of(row));
  write_file(path, json_text(json, 1) + "\n",
             fmt::format("could not write the summary to {}", path), Readers::owner);
}

}  // namespace sentinel
