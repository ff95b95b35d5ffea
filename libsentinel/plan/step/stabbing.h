// Of many weighted ranges of one cyclic step, the heaviest that contains a given op: which idle
// tensor is the largest where memory is fullest. A segment tree whose nodes hold the ranges they
// are part of by weight; a range that is closed once stays closed, so that a query only ever moves
// forward. n ranges: O(n log ops) to build, O(log ops) a query beside what it closes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace sentinel::plan {

class Stabbing {
 public:
  explicit Stabbing(std::uint32_t ops) : ops_(ops), nodes_(2 * std::size_t{ops}) {}

  // Positions [first, last), at most one step long and ending before 2 * ops. All of them are added
  // before the first query. Where the range goes on past the step's end, its part there weighs
  // `weight_past_end`.
  void add(std::uint32_t first, std::uint32_t last, double weight, double weight_past_end,
           std::uint32_t id);
  void add(std::uint32_t first, std::uint32_t last, double weight, std::uint32_t id) {
    add(first, last, weight, weight, id);
  }

  using Test = std::function<bool(std::uint32_t)>;
  // The heaviest open range over the op, the lowest id among equals. `closed` must not be taken
  // back for an id for which it once was true; `skipped` may, and costs a query time for each.
  std::optional<std::uint32_t> heaviest(
      std::uint32_t op, const Test& closed,
      const Test& skipped = [](std::uint32_t) { return false; });

 private:
  struct Entry {
    double weight;
    std::uint32_t id;
    bool operator<(const Entry& other) const {  // the better one first
      return weight != other.weight ? weight > other.weight : id < other.id;
    }
  };
  struct Node {
    std::vector<Entry> entries;
    std::size_t open = 0;  // entries before it are closed
    bool sorted = false;
  };
  void cover(std::uint32_t first, std::uint32_t last, Entry entry);

  std::uint32_t ops_;
  std::vector<Node> nodes_;  // node i has the children 2i and 2i + 1; op k is leaf ops + k
};

}  // namespace sentinel::plan
