// Reads NUMA nodes from /sys through hwloc, with the attributes that the firmware tells.
#include "engine/host/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <numa.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <memory>

#include "base/files.h"
#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

long number(const fs::path& path, long otherwise) {
  const auto line = first_line(path);
  try {
    return line.empty() ? otherwise : std::stol(line, nullptr, 0);
  } catch (const std::exception&) {
    return otherwise;
  }
}

// Whether "0-3,7" names the number. Text of another form names none.
bool lists(const std::string& text, int number) {
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc()) return false;
    int last = first;
    if (parsed.ptr < end && *parsed.ptr == '-') parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc()) return false;
    if (first <= number && number <= last) return true;
    at = parsed.ptr + 1;  // behind the comma
  }
  return false;
}

struct Unload {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Unload>;

Topology load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Topology owned(topology);
  return hwloc_topology_load(topology) == 0 ? std::move(owned) : nullptr;
}

// From the processors nearest to the node; 0: not reported.
double attribute(hwloc_topology_t topology, hwloc_obj_t node,
                 std::initializer_list<hwloc_memattr_id_e> any) {
  for (const auto id : any) {
    hwloc_location initiator{};
    hwloc_uint64_t value = 0;
    if (hwloc_memattr_get_best_initiator(topology, id, node, 0, &initiator, &value) == 0 &&
        value != 0)
      return static_cast<double>(value);
  }
  return 0;
}

void read_attributes(const Topology& topology, NumaNode& node) {
  const auto object = hwloc_get_numanode_obj_by_os_index(topology.get(), node.id);
  if (object == nullptr) return;
  const auto of = [&](auto... ids) { return attribute(topology.get(), object, {ids...}); };
  constexpr double kMiB = 1 << 20;
  node.read_bw = kMiB * of(HWLOC_MEMATTR_ID_READ_BANDWIDTH, HWLOC_MEMATTR_ID_BANDWIDTH);
  node.write_bw = kMiB * of(HWLOC_MEMATTR_ID_WRITE_BANDWIDTH, HWLOC_MEMATTR_ID_BANDWIDTH);
  node.latency_us = of(HWLOC_MEMATTR_ID_READ_LATENCY, HWLOC_MEMATTR_ID_LATENCY) / 1e3;
}

unsigned processors_of(int node) {
  bitmask* mask = numa_allocate_cpumask();
  const bool known = numa_node_to_cpus(node, mask) == 0;
  const unsigned count = known ? numa_bitmask_weight(mask) : 0;
  numa_free_cpumask(mask);
  return count;
}

std::string all_of(const std::vector<NumaNode>& nodes) {
  std::vector<std::string> texts;
  for (const auto& node : nodes) texts.push_back(describe(node));
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

std::vector<NumaNode> numa_nodes() {
  std::vector<NumaNode> nodes;
  if (numa_available() < 0) return nodes;
  for (int id = 0; id <= numa_max_node(); ++id) {
    if (!numa_bitmask_isbitset(numa_nodes_ptr, static_cast<unsigned>(id))) continue;
    long long free = 0;
    const auto bytes = numa_node_size64(id, &free);
    NumaNode node{.id = id,
                  .bytes = static_cast<std::uint64_t>(std::max(bytes, 0ll)),
                  .free_bytes = static_cast<std::uint64_t>(std::max(free, 0ll)),
                  .processors = processors_of(id),
                  .tier = memory_tier(id)};
    nodes.push_back(std::move(node));
  }
  for (auto& node : nodes)
    for (const auto& other : nodes) node.distances.push_back(numa_distance(node.id, other.id));
  return nodes;
}

std::uint64_t free_bytes(int node) {
  long long free = 0;
  numa_node_size64(node, &free);
  return static_cast<std::uint64_t>(std::max(free, 0ll));
}

void add_attributes(std::vector<NumaNode>& nodes) {
  const auto topology = load_topology();
  if (!topology) return;
  for (auto& node : nodes) read_attributes(topology, node);
}

int memory_tier(int node, const fs::path& sys) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(sys / "devices/virtual/memory_tiering", none)) {
    const auto name = entry.path().filename().string();
    constexpr std::string_view prefix = "memory_tier";
    if (!name.starts_with(prefix)) continue;
    if (lists(first_line(entry.path() / "nodelist"), node))
      return std::stoi(name.substr(prefix.size()));
  }
  return -1;
}

std::vector<DaxDevice> dax_devices(const fs::path& sys) {
  std::vector<DaxDevice> devices;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(sys / "bus/dax/devices", none)) {
    const auto driver = fs::read_symlink(entry.path() / "driver", none).filename();
    devices.push_back(
        {.name = entry.path().filename(),
         .bytes = static_cast<std::uint64_t>(std::max(number(entry.path() / "size", 0), 0l)),
         .node = static_cast<int>(number(entry.path() / "target_node", -1)),
         .is_memory = driver == "kmem"});
  }
  std::sort(devices.begin(), devices.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return devices;
}

std::string describe(const NumaNode& node) {
  auto text = fmt::format(
      "node{}: {}, {}", node.id, node.bytes != 0 ? print_bytes(node.bytes) : "no memory",
      node.processors != 0 ? fmt::format("{} processors", node.processors) : "no processors");
  if (node.tier >= 0) text += fmt::format(", memory tier {}", node.tier);
  if (node.read_bw != 0)
    text += fmt::format(", {:.1f} GB/s read and {:.1f} GB/s written (HMAT)", node.read_bw / 1e9,
                        node.write_bw / 1e9);
  return text;
}

std::optional<NodeTiers> parse_node_tiers(const std::string& text) {
  std::map<std::string, int> nodes;
  bool other = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find(',', at), text.size());
    const auto part = text.substr(at, end - at);
    at = end + 1;
    const auto key = part.substr(0, part.find('=')), value = part.substr(part.find('=') + 1);
    const bool node = value.starts_with("node") && value.size() > 4 && value.size() < 9 &&
                      value.find_first_not_of("0123456789", 4) == value.npos;
    if (node && (key == "fast" || key == "slow"))
      other |= !nodes.emplace(key, std::stoi(value.substr(4))).second;
    else
      other = true;
  }
  if (nodes.empty()) return std::nullopt;
  if (other || nodes.size() != 2)
    throw Error(fmt::format(
        "--tiers {}: name a NUMA node for both, as in fast=node0,slow=node1, or an SSD's directory "
        "for the slow one alone, as in slow=DIR, or slow=A,B for two disks",
        text));
  return NodeTiers{nodes["fast"], nodes["slow"]};
}

std::string print(const NodeTiers& tiers) {
  return fmt::format("node{}-node{}", tiers.fast, tiers.slow);
}

std::string check_tiers(const NodeTiers& tiers, const std::vector<NumaNode>& nodes) {
  const auto find = [&](int id) -> const NumaNode& {
    const auto found =
        std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) { return node.id == id; });
    if (found == nodes.end() && nodes.size() < 2)
      throw Error(fmt::format(
          "this machine has no node{}: its one NUMA node is {}. An SSD serves as the slow tier "
          "instead: --slow DIR; `sentinel doctor` tells which devices could become a node",
          id, all_of(nodes)));
    if (found == nodes.end())
      throw Error(fmt::format("there is no node{}; there are {}", id, all_of(nodes)));
    if (found->bytes == 0)
      throw Error(fmt::format("node{} has no memory; there are {}", id, all_of(nodes)));
    return *found;
  };
  const auto& fast = find(tiers.fast);
  find(tiers.slow);
  if (tiers.fast == tiers.slow)
    throw Error(
        fmt::format("node{} cannot be both tiers; there are {}", tiers.fast, all_of(nodes)));
  if (fast.processors != 0) return "";
  return fmt::format("node{} has no processors: as the fast tier it is an unusual choice", fast.id);
}

}  // namespace sentinel
