// `sentinel bench` between NUMA nodes: what move_pages makes of a copy.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "terminal.h"

namespace sentinel::cli {

struct NodePair {
  int from = 0, to = 0;
  double copy_bw = 0, move_4k_bw = 0, move_2m_bw = 0;  // bytes per second
};

std::vector<NodePair> measure_node_pairs(std::uint64_t bytes, Progress&);  // none: one node
std::string text_of(const std::vector<NodePair>&);
nlohmann::ordered_json json_of(const std::vector<NodePair>&);

}  // namespace sentinel::cli
