#include "plan/stabbing.h"

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

std::optional<std::uint32_t> Stabbing::heaviest(std::uint32_t op,
                                                const std::function<bool(std::uint32_t)>& closed) {
  std::optional<Entry> best;
  for (std::size_t i = op + std::size_t{ops_}; i > 0; i /= 2) {
    Node& node = nodes_[i];
    if (!node.sorted) std::sort(node.entries.begin(), node.entries.end());
    node.sorted = true;
    while (node.open < node.entries.size() && closed(node.entries[node.open].id)) ++node.open;
    if (node.open < node.entries.size() && (!best || node.entries[node.open] < *best))
      best = node.entries[node.open];
  }
  return best ? std::optional(best->id) : std::nullopt;
}

}  // namespace sentinel::plan
