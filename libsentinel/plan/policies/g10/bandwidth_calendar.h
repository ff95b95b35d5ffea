// How much of each way between fast memory and the slower tiers is already taken during each op of
// a cyclic step, by transfers planned so far. A transfer takes what is free, op by op: a write from
// its start on, a read backwards from the op that needs it, so that it starts as late as is safe.
//
// What a way can carry during an op is its rate times the op's duration; stalls would give it more
// time and are not foreseen. Where the ways to all tiers cross a common link (a GPU's), that is
// shared. Positions are those of plan/step/storage.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/gaps/pressure.h"
#include "sentinel/machine.h"

namespace sentinel::plan {

class BandwidthCalendar {
 public:
  // Not `shared`: what the common link carries is dealt out beforehand; the slowest tier has its
  // full rate, the others what is left.
  BandwidthCalendar(const StepTimes&, const Machine&, bool shared);

  double write_us(std::uint32_t tier, std::uint64_t bytes) const;  // alone, latency included
  double read_us(std::uint32_t tier, std::uint64_t bytes) const;

  // Whether the way out is taken entirely from `from` for as long as the write alone would last.
  bool write_blocked(std::uint32_t tier, std::uint64_t bytes, std::uint32_t from);
  // A write that starts at `from`: the position at whose start it is complete; none beyond `to`.
  std::optional<std::uint32_t> write_end(std::uint32_t tier, std::uint64_t bytes,
                                         std::uint32_t from, std::uint32_t to);
  // A read complete when `to` starts: the latest position at which it can start; none before
  // `from`.
  std::optional<std::uint32_t> read_start(std::uint32_t tier, std::uint64_t bytes,
                                          std::uint32_t from, std::uint32_t to);
  void book_write(std::uint32_t tier, std::uint64_t bytes, std::uint32_t from, std::uint32_t to);
  void book_read(std::uint32_t tier, std::uint64_t bytes, std::uint32_t from, std::uint32_t to);

 private:
  // One direction of one tier. `skip` leads over ops with nothing free (path compression), so that
  // a transfer costs what it fills and no more.
  struct Way {
    double bytes_per_us = 0, latency_us = 0;
    std::vector<double> free;         // per op
    std::vector<std::uint32_t> skip;  // per op and one beyond
  };

  static double alone_us(const Way&, std::uint64_t bytes);
  double free(const Way&, const std::vector<double>& common, std::uint32_t op) const;
  std::uint32_t next_free(Way&, const std::vector<double>& common, std::uint32_t position);
  std::optional<std::uint32_t> last_free(Way&, const std::vector<double>& common,
                                         std::uint32_t from, std::uint32_t position);
  void take(Way&, std::vector<double>& common, std::uint32_t op, double bytes);

  const StepTimes& times_;
  std::uint32_t ops_;
  std::vector<Way> out_, in_;                   // per tier; [0] is not used
  std::vector<double> common_out_, common_in_;  // per op; empty: no common link
};

}  // namespace sentinel::plan
