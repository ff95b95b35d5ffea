// Names the tensors and ops of plan/check/made_again.h, and adds what replays have taken.
#include "runtime/limit/replay_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/text.h"
#include "base/units.h"
#include "plan/check/made_again.h"

namespace sentinel {

std::string no_replays(const SessionOptions& options, bool can) {
  if (!options.moves.recompute) return "recomputation is off";
  const bool in_place = options.tiers.nodes || options.gpu.memory == kPageable;
  if (in_place) return std::string(plan::kInPlace);
  return can ? "" : std::string(plan::kAdaptorCannot);
}

std::vector<ReplayRow> replay_rows(const Bucket& kind, std::size_t plan, const Machine& machine) {
  const auto& profile = kind.profile();
  const auto named = [&](OpId op) {
    return ReplayRow::NamedOp{op.value, profile.ops[op.index()].name};
  };
  std::vector<ReplayRow> rows;
  for (const auto& group : plan::made_again(kind.plan(), profile, machine)) {
    const auto took = kind.replayed_before(group.before);
    auto& row = rows.emplace_back(ReplayRow{.plan = plan,
                                            .before = named(group.before),
                                            .us = group.us,
                                            .move_us = group.move_us,
                                            .times = took.times,
                                            .measured_us = took.us});
    for (const auto op : group.replays) row.replays.push_back(named(op));
    for (const auto& lost : group.tensors) {
      const auto& tensor = profile.tensors[lost.tensor.index()];
      row.tensors.push_back({.tensor = lost.tensor.value,
                             .name = tensor.name,
                             .bytes = tensor.bytes,
                             .maker = named(lost.maker)});
    }
  }
  return rows;
}

namespace {

std::uint64_t bytes_of(const ReplayRow& row) {
  std::uint64_t bytes = 0;
  for (const auto& lost : row.tensors) bytes += lost.bytes;
  return bytes;
}

std::string name_of(const ReplayRow::NamedOp& op) {
  return fmt::format("op {} ({})", op.op, op.name);
}

std::string line_of(const ReplayRow& row) {
  const auto& largest = *std::ranges::max_element(row.tensors, {}, &ReplayRow::Lost::bytes);
  const auto others = row.tensors.size() - 1;
  return printable(fmt::format(
      "  #{} {} of {}{}, {}, before {} by {} replay{}: {}, planned {}; a move would take {}",
      largest.tensor, largest.name, name_of(largest.maker),
      others == 0 ? "" : fmt::format(" and {} more", others), print_bytes(bytes_of(row)),
      name_of(row.before), row.replays.size(), row.replays.size() == 1 ? "" : "s",
      row.times > 0 ? print_us(row.step_us()) : std::string("not run yet"), print_us(row.us),
      print_us(row.move_us)));
}

}  // namespace

std::vector<std::string> in_words(const std::vector<ReplayRow>& rows) {
  constexpr std::size_t kDearest = 3;
  std::vector<const ReplayRow*> dearest;
  ReplayRow all;
  std::uint64_t bytes = 0, tensors = 0, replays = 0;
  double measured_us = 0;
  if (rows.empty()) return {};
  const auto kept = std::ranges::find(rows, false, &ReplayRow::given_up);
  const auto& first = kept == rows.end() ? rows.front() : *kept;
  for (const auto& row : rows) {
    if (row.plan != first.plan || row.given_up != first.given_up || row.tensors.empty()) continue;
    dearest.push_back(&row);
    bytes += bytes_of(row), tensors += row.tensors.size(), replays += row.replays.size();
    all.us += row.us, all.move_us += row.move_us;
    measured_us += row.times > 0 ? row.step_us() : 0;
  }
  if (dearest.empty()) return {};
  std::ranges::stable_sort(dearest, std::greater<>(), [](const auto* row) { return row->us; });
  std::vector<std::string> lines = {fmt::format(
      "a step {} {} tensor{} of {} again, by {} replay{}: {}, planned {}; moves would take {}",
      first.given_up ? "of the plan that was given up made" : "makes", tensors,
      tensors == 1 ? "" : "s", print_bytes(bytes), replays, replays == 1 ? "" : "s",
      print_us(measured_us), print_us(all.us), print_us(all.move_us))};
  for (std::size_t i = 0; i < std::min(dearest.size(), kDearest); ++i)
    lines.push_back(line_of(*dearest[i]));
  if (dearest.size() > kDearest)
    lines.push_back(
        fmt::format("  and before {} more ops, which --summary lists", dearest.size() - kDearest));
  return lines;
}

std::string in_words(const ReplayTrials& trials) {
  if (trials.refused.empty()) return {};
  std::uint64_t refused = 0;
  std::string names;
  for (const auto& [name, times] : trials.refused) {
    refused += times;
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", printable(name), times);
  }
  return fmt::format(
      "{} of {} ops did not give the same bytes when they were tried, so what they make is moved: "
      "{}",
      refused, trials.ops, names);
}

}  // namespace sentinel
