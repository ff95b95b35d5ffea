// A value per op of one cyclic step, changed over ranges: bytes held. Every operation is
// O(log ops). Ranges are of positions; those at or past `ops` belong to the next step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sentinel::plan {

class Level {
 public:
  explicit Level(std::span<const std::uint64_t> values);

  // Adds to [first, last); at most one step long.
  void add(std::uint32_t first, std::uint32_t last, std::int64_t bytes);
  std::int64_t most(std::uint32_t first, std::uint32_t last) const;  // INT64_MIN if empty
  // The last position of [first, last) whose value exceeds `bytes`.
  std::optional<std::uint32_t> last_above(std::uint32_t first, std::uint32_t last,
                                          std::int64_t bytes) const;
  std::int64_t at(std::uint32_t position) const { return most(position, position + 1); }
  std::uint32_t ops() const { return ops_; }

 private:
  struct Positions {
    std::uint32_t first, last;
  };
  void add(std::size_t node, Positions of, Positions to, std::int64_t bytes);
  std::int64_t most(std::size_t node, Positions of, Positions in) const;
  std::optional<std::uint32_t> above(std::size_t node, Positions of, Positions in,
                                     std::int64_t bytes) const;

  std::uint32_t ops_;
  std::vector<std::int64_t> most_, added_;  // of a segment tree's nodes; added_ to the whole node
};

}  // namespace sentinel::plan
