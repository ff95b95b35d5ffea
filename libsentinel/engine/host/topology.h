// The NUMA nodes of this machine, as the kernel reports them: sizes, processors, distances, memory
// tiers, bandwidths (the firmware's HMAT), and DAX devices that could become nodes. Read through
// hwloc and libnuma; sysfs for what neither knows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sentinel {

struct NumaNode {
  int id = 0;
  std::uint64_t bytes = 0, free_bytes = 0;
  unsigned processors = 0;           // 0: memory only, as PMEM and CXL nodes are
  std::vector<int> distances;        // to each node, in the order of the list
  int tier = -1;                     // the kernel's memory tier; lower is faster
  double read_bw = 0, write_bw = 0;  // bytes per second from the nearest processors; 0: unknown
  double latency_us = 0;
};

struct DaxDevice {
  std::string name;  // "dax0.0"
  std::uint64_t bytes = 0;
  int node = -1;           // that its memory would belong to
  bool is_memory = false;  // it is a node's memory already
};

std::vector<NumaNode> numa_nodes();  // those with memory or processors, by id
// Bandwidths and latency, where the firmware has an HMAT.
void add_attributes(std::vector<NumaNode>&);
std::vector<DaxDevice> dax_devices(const std::filesystem::path& sys = "/sys");
std::uint64_t free_bytes(int node);
// The kernel's memory tier of a node, or -1.
int memory_tier(int node, const std::filesystem::path& sys = "/sys");

std::string describe(const NumaNode&);  // "node1: 16.0 GiB, no processors, memory tier 22"

// Which nodes serve as tiers: `--tiers fast=node0,slow=node1`.
struct NodeTiers {
  int fast = 0, slow = 1;
  friend bool operator==(const NodeTiers&, const NodeTiers&) = default;
};
// None: the text places no tier in a node ("slow=DIR"). Throws Error on half of a pair.
std::optional<NodeTiers> parse_node_tiers(const std::string& text);
std::string print(const NodeTiers&);  // "node0-node1"

// Throws Error, which names the nodes that exist, where one is missing, has no memory, or is given
// twice. The warning where they are unusual, else empty.
std::string check_tiers(const NodeTiers&, const std::vector<NumaNode>&);

}  // namespace sentinel
