// Times reads, copies and move_pages between NUMA nodes.
#include "measure/nodes.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "alloc/ranges.h"
#include "base/clock.h"
#include "base/units.h"
#include "engine/numa/page_mover.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kHuge = 2u << 20;

// Memory in one node, populated, in pages of the granule's size.
class NodeBuffer {
 public:
  NodeBuffer(int node, std::uint64_t bytes, std::uint64_t granule_bytes = kHuge)
      : calls_(make_node_calls()),
        bytes_(round_up(bytes, kHuge)),
        begin_(reserve_anonymous(bytes_, kHuge)) {
    if (granule_bytes < kHuge) madvise(memory(), bytes_, MADV_NOHUGEPAGE);
    const int code = calls_->bind(memory(), bytes_, node);
    if (code != 0)
      throw Error(fmt::format("could not take memory of node{} to measure", node), -code);
    std::memset(memory(), 1, bytes_);
  }
  ~NodeBuffer() { munmap(memory(), bytes_); }
  NodeBuffer(const NodeBuffer&) = delete;
  NodeBuffer& operator=(const NodeBuffer&) = delete;

  void* memory() const { return reinterpret_cast<void*>(begin_); }
  std::uint64_t bytes() const { return bytes_; }
  NodeCalls& calls() const { return *calls_; }

 private:
  std::unique_ptr<NodeCalls> calls_;
  std::uint64_t bytes_;
  std::uintptr_t begin_;
};

// By batches as large as the engine's. `move` takes one and answers the bytes that moved.
template <class Move>
double rate_of(const NodeBuffer& buffer, int to, std::uint64_t granule_bytes, Move&& move) {
  const auto batch = std::max<std::uint64_t>(kHuge / granule_bytes, 4);
  std::vector<std::uintptr_t> granules;
  std::uint64_t bytes = 0;
  const auto begin = Clock::now();
  for (std::uint64_t at = 0; at < buffer.bytes(); at += granule_bytes) {
    granules.push_back(reinterpret_cast<std::uintptr_t>(buffer.memory()) + at);
    if (granules.size() < batch && at + granule_bytes < buffer.bytes()) continue;
    bytes += move(granules);
    granules.clear();
  }
  const double seconds = seconds_since(begin);
  if (bytes == 0) throw Error(fmt::format("no page could be moved to node{}", to));
  return static_cast<double>(bytes) / seconds;
}

// As the engine does.
double move(const NodeBuffer& buffer, int to, std::uint64_t granule_bytes) {
  PageMover mover(buffer.calls(), granule_bytes);
  std::vector<Moved> moved;
  return rate_of(buffer, to, granule_bytes, [&](const std::vector<std::uintptr_t>& granules) {
    moved.resize(granules.size());
    mover.move(granules, to, moved);
    std::uint64_t bytes = 0;
    for (const auto& one : moved) bytes += one.bytes;
    return bytes;
  });
}

// The call alone, whose answers are looked at and nothing else.
double call(const NodeBuffer& buffer, int to, std::uint64_t granule_bytes) {
  std::vector<void*> pages;
  std::vector<int> status;
  return rate_of(buffer, to, granule_bytes, [&](const std::vector<std::uintptr_t>& granules) {
    pages.clear();
    for (const auto at : granules) pages.push_back(reinterpret_cast<void*>(at));
    status.assign(pages.size(), -1);
    buffer.calls().move(pages, to, status);
    return granule_bytes * static_cast<std::uint64_t>(std::count(status.begin(), status.end(), to));
  });
}

TierSpec tier_of(const NumaNode& node) {
  constexpr auto bytes = 64_MiB;
  const bool told = node.read_bw != 0 && node.write_bw != 0;
  return {.name = fmt::format("node{}", node.id),
          .capacity = node.bytes,
          .read_bw = told ? node.read_bw : measure_node_read(node.id, bytes),
          .write_bw = told ? node.write_bw : measure_node_copy(node.id, node.id, bytes),
          .latency_us = node.latency_us != 0 ? node.latency_us : measure_node_latency_us(node.id),
          .byte_addressable = true};
}

}  // namespace

double measure_node_copy(int from, int to, std::uint64_t bytes) {
  const NodeBuffer source(from, bytes), target(to, bytes);
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    std::memcpy(target.memory(), source.memory(), target.bytes());
    best = std::max(best, static_cast<double>(target.bytes()) / seconds_since(begin));
  }
  return best;
}

double measure_node_read(int node, std::uint64_t bytes) {
  const NodeBuffer buffer(node, bytes);
  const auto* words = static_cast<const std::uint64_t*>(buffer.memory());
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    std::uint64_t sums[4] = {};
    const auto begin = Clock::now();
    for (std::uint64_t w = 0; w < buffer.bytes() / 8; w += 4)
      for (int k = 0; k < 4; ++k) sums[k] += words[w + static_cast<std::uint64_t>(k)];
    best = std::max(best, static_cast<double>(buffer.bytes()) / seconds_since(begin));
    volatile auto used = sums[0] + sums[1] + sums[2] + sums[3];
    static_cast<void>(used);
  }
  return best;
}

double measure_node_move(int from, int to, std::uint64_t granule_bytes, std::uint64_t bytes) {
  return move(NodeBuffer(from, bytes, granule_bytes), to, granule_bytes);
}

double measure_node_call(int from, int to, std::uint64_t granule_bytes, std::uint64_t bytes) {
  return call(NodeBuffer(from, bytes, granule_bytes), to, granule_bytes);
}

NodeExchange measure_node_exchange(int from, int to, std::uint64_t granule_bytes,
                                   std::uint64_t bytes) {
  const NodeBuffer there(from, bytes, granule_bytes), back(to, bytes, granule_bytes);
  NodeExchange exchange;
  std::thread other([&] {
    try {
      exchange.back = move(back, from, granule_bytes);
    } catch (const Error&) {  // the other direction tells
    }
  });
  try {
    exchange.there = move(there, to, granule_bytes);
  } catch (...) {
    other.join();
    throw;
  }
  other.join();
  return exchange;
}

// Each load needs the one before: a cycle over cache lines far apart.
double measure_node_latency_us(int node) {
  constexpr std::uint64_t steps = 200'000, stride = 4096 + 64;
  const NodeBuffer buffer(node, 64_MiB);
  auto* bytes = static_cast<char*>(buffer.memory());
  const auto places = buffer.bytes() / stride;
  for (std::uint64_t i = 0; i < places; ++i) {
    const auto next = (i + places / 2 + 1) % places;  // never the neighbour
    std::memcpy(bytes + i * stride, &next, sizeof next);
  }
  std::uint64_t at = 0;
  const auto begin = Clock::now();
  for (std::uint64_t i = 0; i < steps; ++i) std::memcpy(&at, bytes + at * stride, sizeof at);
  volatile auto used = at;
  static_cast<void>(used);
  return 1e6 * seconds_since(begin) / steps;
}

Machine measure_nodes(const NodeTiers& nodes, std::uint64_t granule_bytes) {
  constexpr auto bytes = 64_MiB;
  auto all = numa_nodes();
  add_attributes(all);
  const auto spec = [&](int id) {
    return tier_of(*std::find_if(all.begin(), all.end(), [&](auto& n) { return n.id == id; }));
  };
  const auto [promoted, demoted] =
      measure_node_exchange(nodes.slow, nodes.fast, granule_bytes, bytes);
  return {
      .name = "local-" + print(nodes),
      .source = "measured, or the firmware's HMAT",
      .tiers = {spec(nodes.fast), spec(nodes.slow)},
      .links = {{.name = "move_pages",
                 .bw = demoted == 0 ? promoted : std::min(promoted, demoted),
                 .tiers = {fmt::format("node{}", nodes.fast), fmt::format("node{}", nodes.slow)}}},
      .fault_batch_bytes = granule_bytes,
      .granule_bytes = granule_bytes,
      .exclusive = true};
}

}  // namespace sentinel
