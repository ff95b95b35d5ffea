// A segment tree whose nodes keep ranges by weight.
#include "plan/step/stabbing.h"

#include <algorithm>

namespace sentinel::plan {

void Stabbing::cover(std::uint32_t first, std::uint32_t last, Entry entry) {
  std::size_t from = first + ops_, to = last + ops_;
  for (; from < to; from /= 2, to /= 2) {
    if (from % 2 == 1) nodes_[from++].entries.push_back(entry);
    if (to % 2 == 1) nodes_[--to].entries.push_back(entry);
  }
}

void Stabbing::add(std::uint32_t first, std::uint32_t last, double weight, double weight_past_end,
                   std::uint32_t id) {
  if (first < ops_) cover(first, std::min(last, ops_), {weight, id});
  if (last > ops_) cover(std::max(first, ops_) - ops_, last - ops_, {weight_past_end, id});
}

std::optional<std::uint32_t> Stabbing::heaviest(std::uint32_t op, const Test& closed,
                                                const Test& skipped) {
  std::optional<Entry> best;
  for (std::size_t i = op + std::size_t{ops_}; i > 0; i /= 2) {
    Node& node = nodes_[i];
    if (!node.sorted) std::sort(node.entries.begin(), node.entries.end());
    node.sorted = true;
    while (node.open < node.entries.size() && closed(node.entries[node.open].id)) ++node.open;
    std::size_t at = node.open;
    while (at < node.entries.size() && (!best || node.entries[at] < *best) &&
           (closed(node.entries[at].id) || skipped(node.entries[at].id)))
      ++at;
    if (at < node.entries.size() && (!best || node.entries[at] < *best)) best = node.entries[at];
  }
  return best ? std::optional(best->id) : std::nullopt;
}

}  // namespace sentinel::plan
