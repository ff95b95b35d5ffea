#include "bench_nodes.h"

#include <fmt/format.h>

#include "base/units.h"
#include "execute/measure_nodes.h"

namespace sentinel::cli {

std::vector<NodePair> measure_node_pairs(std::uint64_t bytes, Progress& progress) {
  std::vector<NodePair> pairs;
  const auto nodes = numa_nodes();
  for (const auto& from : nodes)
    for (const auto& to : nodes) {
      if (from.id == to.id || from.bytes == 0 || to.bytes == 0) continue;
      progress.now(fmt::format("moving from node{} to node{}", from.id, to.id));
      pairs.push_back({from.id, to.id, measure_node_copy(from.id, to.id, bytes),
                       measure_node_move(from.id, to.id, 4_KiB, bytes),
                       measure_node_move(from.id, to.id, 2_MiB, bytes)});
    }
  return pairs;
}

std::string text_of(const std::vector<NodePair>& pairs) {
  if (pairs.empty()) return "\nNUMA: one node with memory; nothing moves between nodes\n";
  std::string text = "\n  GB/s              memcpy  move_pages 4 KiB  move_pages 2 MiB\n";
  const auto share = [](double bw, double limit) {
    return fmt::format("{:.2f} ({:.0f} %)", bw / 1e9, 100 * bw / limit);
  };
  for (const auto& p : pairs)
    text += fmt::format("  {:<16}  {:>6.2f}  {:>16}  {:>16}\n",
                        fmt::format("node{} to node{}", p.from, p.to), p.copy_bw / 1e9,
                        share(p.move_4k_bw, p.copy_bw), share(p.move_2m_bw, p.copy_bw));
  return text;
}

nlohmann::ordered_json json_of(const std::vector<NodePair>& pairs) {
  auto json = nlohmann::ordered_json::array();
  for (const auto& p : pairs)
    json.push_back({{"from", fmt::format("node{}", p.from)},
                    {"to", fmt::format("node{}", p.to)},
                    {"copy_bw", p.copy_bw},
                    {"move_pages_4k_bw", p.move_4k_bw},
                    {"move_pages_2m_bw", p.move_2m_bw}});
  return json;
}

}  // namespace sentinel::cli
