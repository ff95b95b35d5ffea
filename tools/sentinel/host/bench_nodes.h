// `sentinel bench` between NUMA nodes: what move_pages makes of a copy, and Sentinel of move_pages.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace sentinel::cli {

struct NodeRates {  // of one page size, bytes per second
  double call = 0, move = 0,
         both_ways = 0;  // the call alone; as the engine uses it; each way at once
};

struct NodePair {
  int from = 0, to = 0;
  double copy_bw = 0;
  std::array<NodeRates, 2> rates;  // 4 KiB, 2 MiB
};

std::vector<NodePair> measure_node_pairs(std::uint64_t bytes, Progress&);  // none: one node
std::string text_of(const std::vector<NodePair>&);
nlohmann::ordered_json json_of(const std::vector<NodePair>&);

}  // namespace sentinel::cli
