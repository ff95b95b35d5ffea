// Measures every pair of NUMA nodes, and prints the figures.
#include "host/bench_nodes.h"

#include <fmt/format.h>

#include "base/units.h"
#include "measure/nodes.h"

namespace sentinel::cli {
namespace {

struct PageSize {
  std::uint64_t bytes;
  const char *name, *key;
};
constexpr PageSize kSizes[] = {{4_KiB, "4 KiB", "4k"}, {2_MiB, "2 MiB", "2m"}};

NodeRates measure(int from, int to, std::uint64_t granule, std::uint64_t bytes) {
  return {.call = measure_node_call(from, to, granule, bytes),
          .move = measure_node_move(from, to, granule, bytes),
          .both_ways = measure_node_exchange(from, to, granule, bytes).there};
}

}  // namespace

std::vector<NodePair> measure_node_pairs(std::uint64_t bytes, Progress& progress) {
  std::vector<NodePair> pairs;
  const auto nodes = numa_nodes();
  for (const auto& from : nodes)
    for (const auto& to : nodes) {
      if (from.id == to.id || from.bytes == 0 || to.bytes == 0) continue;
      progress.now(fmt::format("moving from node{} to node{}", from.id, to.id));
      NodePair pair{from.id, to.id, measure_node_copy(from.id, to.id, bytes), {}};
      for (std::size_t i = 0; i < pair.rates.size(); ++i)
        pair.rates[i] = measure(from.id, to.id, kSizes[i].bytes, bytes);
      pairs.push_back(pair);
    }
  return pairs;
}

std::string text_of(const std::vector<NodePair>& pairs) {
  if (pairs.empty()) return "\nNUMA: one node with memory; nothing moves between nodes\n";
  std::string text =
      "\n  GB/s            pages  memcpy  move_pages  Sentinel with it  both ways at once\n";
  for (const auto& p : pairs)
    for (std::size_t i = 0; i < p.rates.size(); ++i) {
      const auto& rates = p.rates[i];
      text += fmt::format(
          "  {:<14}  {}  {:>6.2f}  {:>10.2f}  {:>16}  {:>17}\n",
          fmt::format("node{} to node{}", p.from, p.to), kSizes[i].name, p.copy_bw / 1e9,
          rates.call / 1e9,
          fmt::format("{:.2f} ({:.0f} %)", rates.move / 1e9, 100 * rates.move / rates.call),
          fmt::format("{:.2f} each", rates.both_ways / 1e9));
    }
  return text;
}

nlohmann::ordered_json json_of(const std::vector<NodePair>& pairs) {
  auto json = nlohmann::ordered_json::array();
  for (const auto& p : pairs) {
    json.push_back({{"from", fmt::format("node{}", p.from)},
                    {"to", fmt::format("node{}", p.to)},
                    {"copy_bw", p.copy_bw}});
    for (std::size_t i = 0; i < p.rates.size(); ++i) {
      const auto key = [&](const char* what) {
        return fmt::format("{}_{}_bw", what, kSizes[i].key);
      };
      json.back()[key("move_pages")] = p.rates[i].call;
      json.back()[key("sentinel")] = p.rates[i].move;
      json.back()[key("both_ways")] = p.rates[i].both_ways;
    }
  }
  return json;
}

}  // namespace sentinel::cli
