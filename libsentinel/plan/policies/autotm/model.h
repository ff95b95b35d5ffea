// AutoTM's integer program over one cyclic step (plan/policies/autotm/autotm.cpp), its solution,
// and what is decided greedily beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "plan/solver/integer_program.h"
#include "plan/step/footprint.h"
#include "plan/step/level.h"
#include "plan/step/openings.h"
#include "plan/step/storage.h"
#include "sentinel/policy.h"

namespace sentinel::plan {

struct AutoTmUse {
  bool fast = false;       // in fast memory during the use
  bool kept = false;       // and until the next one (of the next step, after the last)
  double in_place_us = 0;  // what the use costs in the slower tier
  // The use of the same storage that wrote last; its own index if it does, or on exclusive tiers.
  std::uint32_t epoch = 0;
};

class AutoTmModel {
 public:
  static constexpr std::size_t kMostBinaries = 10000;
  static constexpr double kSecondsOfMost = 5;  // with less time in proportion fewer
  static constexpr std::size_t kMostRows = 400;
  static constexpr std::uint64_t kNodes = 20;  // of the search tree, unless an effort is asked for

  AutoTmModel(const Profile&, const Machine&, const PlanOptions&);

  const std::vector<Storage>& storages() const { return storages_; }
  const std::vector<AutoTmUse>& uses(std::uint32_t storage) const { return uses_[storage]; }
  bool in_place() const { return in_place_; }

  std::uint64_t peak_if_all_kept() const;
  // Throws Error, naming the op, where ops need their tensors in fast memory and have no room.
  void refuse_what_cannot_fit() const;

  std::uint64_t solve();   // nodes allowed; sets uses()
  double cost_us() const;  // of the decisions: uses in place and movements
  std::uint64_t peak() const;

  // Holds the storage through one further position if there is room.
  bool hold(std::uint32_t storage, std::uint32_t position);

 private:
  struct Columns {  // of one use
    std::uint32_t fast = 0, kept = 0;
  };

  void find_uses(const Profile&);
  std::uint64_t bytes(std::uint32_t i) const { return bytes_[i]; }
  bool has_gap(std::uint32_t i, std::size_t u) const;
  std::uint32_t next(std::uint32_t i, std::size_t u) const;  // position of the use after u
  void raise(std::uint32_t i, std::uint32_t begin, std::uint32_t end, std::int64_t sign);
  bool fits(std::uint32_t begin, std::uint32_t end, std::uint64_t more) const;
  double seconds_left() const;
  std::vector<std::uint32_t> modelled() const;
  IntegerProgram build(const std::vector<std::uint32_t>& chosen);
  void add_storage(IntegerProgram&, std::uint32_t i);
  void add_capacity(IntegerProgram&, const std::vector<std::uint32_t>& chosen) const;
  bool take(std::uint32_t i, std::size_t u);  // the use is fast, if there is room
  bool keep(std::uint32_t i, std::size_t u);
  void take_solution(const std::vector<std::uint32_t>& chosen, const std::vector<double>&);
  void fill_greedily();

  const Clock::time_point begin_ = Clock::now();
  const Machine& machine_;
  const PlanOptions& options_;
  std::uint32_t ops_;
  bool in_place_;
  std::vector<Storage> storages_;
  std::vector<std::uint64_t> bytes_;           // per storage, granules; shared ones in each
  std::vector<std::vector<AutoTmUse>> uses_;   // per storage, as Storage::uses
  std::vector<double> read_us_, write_us_;     // per storage: moving all of it
  std::vector<std::vector<Columns>> columns_;  // per storage and use; of the modelled ones
  Level held_;                                 // per op, by the decisions so far
};

}  // namespace sentinel::plan
