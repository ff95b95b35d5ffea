// The bound's linear program: built from the facts of a step and its buckets, solved, and read back
// as shares of gaps. Bytes are in MiB, times in ms. docs/design/bound.md states the program with
// the same names.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plan/bound/answer.h"
#include "plan/bound/bound_model.h"
#include "plan/solver/linear_program.h"

namespace sentinel::plan {

class BoundProgram {
 public:
  BoundProgram(const Profile&, const Machine&, const StepFacts&, const Buckets&,
               const BoundOptions&);

  // Nothing ever has to leave.
  bool trivial() const { return groups_.empty() && streams_.empty(); }
  std::size_t columns() const { return program_.columns(); }
  Bound solve(double time_limit_s) const;

 private:
  using Column = LinearProgram::Column;
  using Row = LinearProgram::Row;

  struct Piece {                // a gap over intervals
    std::uint32_t leaves, due;  // the first interval in which it may leave; the last to come back
    std::size_t gap;            // of each member's Version::gaps
    std::vector<std::vector<Column>> away;  // per tier: leaves with a copy made for it, or before
    Column remade = -1;
  };
  // Versions with the same intervals are one: their bytes are interchangeable.
  struct Group {
    std::uint32_t made = 0;
    bool copied = false;
    double mib = 0;
    std::vector<std::size_t> members;  // indices into StepFacts::versions
    std::vector<Piece> pieces;
  };
  // A level that never falls below zero, at each checkpoint: what has come to it less what has
  // gone, cyclic over the step.
  struct Level {
    std::vector<Row> change;
    std::vector<Column> at;
  };
  struct Flows {  // of one slower tier
    std::vector<Column> out, in;
    Level uncopied, early, copied, left;
    Row left_start = -1, copied_start = -1;
  };
  struct Window {  // a gap in which one op is replayed
    std::uint32_t use, next;
    double mib;
    Column remade;
  };

  struct Stream {  // of an op that may not fit: what passes through fast memory as it computes
    Column read = -1, written = -1, updated = -1;
  };

  double excess_mib(std::uint32_t j) const;  // what must be away at checkpoint j
  void group_versions();
  void add_stalls();
  void add_tier(double ms_per_mib);
  void add_streams();
  void add_streaming();
  void add_links();
  void add_processors();
  Row add_stall(std::uint32_t interval, double ms);
  void add_copies(Group&, std::size_t tier);
  void add_leaving(const Group&, const Piece&, std::size_t tier, Column, bool fresh);
  void add_sizes(Group&);
  void add_remaking(Group&);
  void add_capacity();
  void add_replays();
  Level level(double upper);
  void change(const Level&, std::uint32_t interval, Column, double amount);
  std::vector<GapShare> shares(const std::vector<double>& value) const;

  const Profile& profile_;
  const Machine& machine_;
  const StepFacts& facts_;
  const Buckets& buckets_;
  std::uint32_t size_;  // checkpoints
  double fast_mib_;
  double total_mib_ = 0;  // of all gaps
  std::vector<Group> groups_;
  LinearProgram program_;
  std::vector<Column> stall_;
  std::map<std::uint32_t, Stream> streams_;  // by checkpoint
  std::vector<Flows> flows_;                 // of tier 1, 2, ...
  Level remade_;                             // away without a copy
  Row remade_start_ = -1;
  std::map<std::uint32_t, std::vector<Window>> windows_;  // by replayed op
};

}  // namespace sentinel::plan
