// Measures NUMA tiers where the firmware does not tell, and what move_pages makes of them.
#pragma once

#include <cstdint>

#include "engine/host/topology.h"
#include "sentinel/machine.h"

namespace sentinel {

// Bytes per second, one thread. Each throws Error. `call` is move_pages by itself, `move` as the
// engine uses it, with retries and accounting.
double measure_node_copy(int from, int to, std::uint64_t bytes);  // memcpy: what moving cannot beat
double measure_node_read(int node, std::uint64_t bytes);
double measure_node_call(int from, int to, std::uint64_t granule_bytes, std::uint64_t bytes);
double measure_node_move(int from, int to, std::uint64_t granule_bytes, std::uint64_t bytes);
double measure_node_latency_us(int node);

// A thread each way at once, as the engine works. Throws Error.
struct NodeExchange {
  double there = 0, back = 0;  // bytes per second
};
NodeExchange measure_node_exchange(int from, int to, std::uint64_t granule_bytes,
                                   std::uint64_t bytes);

// The two nodes as a machine to plan for: capacities as they are, bandwidths and latencies from the
// HMAT or measured, and the rate of move_pages in both directions at once.
// They must exist (check_tiers).
Machine measure_nodes(const NodeTiers&, std::uint64_t granule_bytes);

}  // namespace sentinel
