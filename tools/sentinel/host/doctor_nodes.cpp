// The memory nodes of this machine, and the devices that could become some.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.h"
#include "engine/host/topology.h"
#include "host/doctor.h"

namespace sentinel::cli {
namespace {

Finding overview_of(const std::vector<NumaNode>& nodes, const std::vector<DaxDevice>& devices) {
  std::vector<const NumaNode*> with_memory;
  for (const auto& node : nodes)
    if (node.bytes != 0) with_memory.push_back(&node);
  if (with_memory.size() > 1)
    return {
        "NUMA nodes", true,
        fmt::format("{} with memory; sentinel run --tiers fast=node{},slow=node{} --fast 20% -- "
                    "CMD",
                    with_memory.size(), with_memory.front()->id, with_memory.back()->id),
        ""};
  const bool device =
      std::any_of(devices.begin(), devices.end(), [](const DaxDevice& d) { return !d.is_memory; });
  return {"NUMA nodes", false, "one: no PMEM or CXL node to move to",
          device ? "make a node of a device below; until then an SSD serves as the slow tier"
                 : "none needed: an SSD serves as the slow tier"};
}

Finding finding(const NumaNode& node) {
  const auto text = describe(node);
  auto detail =
      text.substr(text.find(": ") + 2) + fmt::format(", {} free", print_bytes(node.free_bytes));
  if (node.latency_us != 0) detail += fmt::format(", {:.0f} ns (HMAT)", 1e3 * node.latency_us);
  if (node.distances.size() > 1)
    detail += fmt::format(", distances {}", fmt::join(node.distances, " "));
  return {fmt::format("node{}", node.id), node.bytes != 0, detail, ""};
}

Finding finding(const DaxDevice& device) {
  if (device.is_memory)
    return {device.name, true, fmt::format("is memory of node{}", device.node), ""};
  return {device.name, false,
          fmt::format("{} that could be memory of node{}", print_bytes(device.bytes), device.node),
          "daxctl reconfigure-device --mode=system-ram " + device.name};
}

}  // namespace

Findings look_at_nodes() {
  auto nodes = numa_nodes();
  const auto devices = dax_devices();
  if (nodes.empty())
    return {{"NUMA nodes", false, "this kernel has no NUMA support",
             "none needed: an SSD serves as the slow tier"}};
  add_attributes(nodes);
  Findings findings{overview_of(nodes, devices)};
  for (const auto& node : nodes) findings.push_back(finding(node));
  for (const auto& device : devices) findings.push_back(finding(device));
  return findings;
}

}  // namespace sentinel::cli
