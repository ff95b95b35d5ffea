// Computes the strips of a comparison: held bytes and busy links over the steady step.
#include "report/view/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "plan/step/rates.h"

namespace sentinel {
namespace {

// A port's directions are into and out of its tier, a joining link's up and down the tiers.
std::string lane_name(const Machine& machine, const LinkSpec& link, std::uint32_t from,
                      std::uint32_t to) {
  if (link.tiers.size() != 1)
    return fmt::format("{}: {} fast memory", link.name, to < from ? "towards" : "away from");
  const bool into = machine.tiers[to].name == link.tiers.front();
  if (link.name == link.tiers.front())
    return fmt::format("{} memory, {}", link.name, into ? "writing" : "reading");
  return fmt::format("{}: {} {}", link.name, into ? "into" : "out of", link.tiers.front());
}

// Adds `amount` to the parts in proportion to how much of [begin, end) lies in each.
void spread(std::vector<double>& parts, double step_us, double begin, double end, double amount) {
  const double width = step_us / static_cast<double>(parts.size());
  begin = std::clamp(begin, 0.0, step_us);
  end = std::clamp(end, begin, step_us);
  const auto last = parts.size() - 1;
  const auto part_of = [&](double us) {
    return std::min(last, static_cast<std::size_t>(us / width));
  };
  const auto first = part_of(begin), final = part_of(end);
  if (end - begin <= 0) {
    parts[first] += amount;
    return;
  }
  for (auto i = first; i <= final; ++i) {
    const double from = std::max(begin, width * static_cast<double>(i));
    const double to = i == final ? end : std::min(end, width * static_cast<double>(i + 1));
    parts[i] += amount * std::max(0.0, to - from) / (end - begin);
  }
}

std::vector<std::uint64_t> most_held(const sim::Timeline& timeline, double step_us,
                                     std::size_t parts) {
  std::vector<std::uint64_t> most(parts, 0);
  std::uint64_t held = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const double end = step_us * static_cast<double>(i + 1) / static_cast<double>(parts);
    most[i] = held;
    for (; next < timeline.samples.size() && (timeline.samples[next].at_us < end || i + 1 == parts);
         ++next) {
      held = timeline.samples[next].fast_bytes;
      most[i] = std::max(most[i], held);
    }
  }
  return most;
}

}  // namespace

std::vector<Lane> lanes_of(const Machine& machine) {
  std::vector<Lane> lanes;
  const auto add = [&](const std::string& name, double bw, std::uint32_t from, std::uint32_t to) {
    auto at = std::ranges::find(lanes, name, &Lane::name);
    if (at == lanes.end()) at = lanes.insert(at, {name, bw, to < from, {}});
    at->ways.emplace_back(from, to);
  };
  const auto tiers = static_cast<std::uint32_t>(machine.tiers.size());
  for (std::uint32_t from = 0; from < tiers; ++from)
    for (std::uint32_t to = 0; to < tiers; ++to) {
      if (from == to) continue;
      const auto links = plan::links_between(machine, from, to);
      for (const auto i : links)
        add(lane_name(machine, machine.links[i], from, to), machine.links[i].bw, from, to);
      const double alone = plan::rate(machine, from, to) * 1e6;
      if (links.empty())
        add(fmt::format("{} to {}", machine.tiers[from].name, machine.tiers[to].name),
            std::isfinite(alone) ? alone : 0, from, to);
    }
  return lanes;
}

Strip strip_of(const sim::Timeline& timeline, double step_us, const std::vector<Lane>& lanes,
               std::size_t parts) {
  Strip strip{
      .fast_bytes = {}, .stalled = {}, .moved = std::vector<std::vector<double>>(lanes.size())};
  if (parts == 0 || step_us <= 0) return strip;
  strip.fast_bytes = most_held(timeline, step_us, parts);
  strip.stalled.assign(parts, 0);
  const double width = step_us / static_cast<double>(parts);
  for (const auto& wait : timeline.waits)
    spread(strip.stalled, step_us, wait.begin_us, wait.end_us,
           (wait.end_us - wait.begin_us) / width);
  for (auto& share : strip.stalled) share = std::min(share, 1.0);
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::size_t>> crossed;
  for (std::size_t i = 0; i < lanes.size(); ++i)
    for (const auto& way : lanes[i].ways) crossed[way].push_back(i);
  for (const auto& transfer : timeline.transfers)
    for (const auto i : crossed[{transfer.from, transfer.to}]) {
      strip.moved[i].resize(parts, 0);
      spread(strip.moved[i], step_us, transfer.begin_us, transfer.end_us,
             static_cast<double>(transfer.bytes));
    }
  return strip;
}

}  // namespace sentinel
