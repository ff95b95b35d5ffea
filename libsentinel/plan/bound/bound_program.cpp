// Builds rows and columns of the bound's linear program, and reads its solution back.
#include "plan/bound/bound_program.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "plan/bound/passages.h"
#include "plan/step/rates.h"
#include "sentinel/analysis.h"

namespace sentinel::plan {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNothing = 1e-6;  // a smaller share of a gap is rounding
// ms for a MiB, where faster tiers come first: below what it takes on any link, so that no op waits
// for the sake of a tier.
constexpr double kSlowerTier = 1e-4;

}  // namespace

BoundProgram::BoundProgram(const Profile& profile, const Machine& machine, const StepFacts& facts,
                           const Buckets& buckets, const BoundOptions& options)
    : profile_(profile),
      machine_(machine),
      facts_(facts),
      buckets_(buckets),
      size_(buckets.size()),
      fast_mib_(static_cast<double>(options.fast_bytes) / kMiB) {
  bool scarce = false;
  for (std::uint32_t j = 0; j < size_; ++j) scarce |= excess_mib(j) > 0;
  if (!scarce) return;
  group_versions();
  add_streams();
  add_stalls();
  for (std::uint32_t t = 1; t < machine.tiers.size(); ++t)
    add_tier(options.faster_tiers_first && t > 1 ? kSlowerTier : 0);
  add_links();
  add_processors();
  add_streaming();
  remade_ = level(2 * total_mib_);
  remade_start_ = program_.row(0, 0);
  program_.add(remade_start_, remade_.at[size_ - 1], 1);
  for (Group& group : groups_) {
    for (std::size_t t = 0; t < flows_.size(); ++t) add_copies(group, t);
    add_remaking(group);
    add_sizes(group);
  }
  add_capacity();
  add_replays();
}

double BoundProgram::excess_mib(std::uint32_t j) const {
  return facts_.retained_bytes[buckets_.checkpoint(j)] / kMiB - fast_mib_;
}

void BoundProgram::group_versions() {
  std::map<std::vector<std::uint32_t>, std::size_t> known;
  for (std::size_t v = 0; v < facts_.versions.size(); ++v) {
    const Version& version = facts_.versions[v];
    Group group{.made = buckets_.of_end(version.made), .copied = version.copied};
    const std::uint32_t shift = group.made / size_ * size_;
    group.made -= shift;
    std::vector<std::uint32_t> key{group.made, version.copied};
    for (std::size_t g = 0; g < version.gaps.size(); ++g) {
      const WantedGap& gap = version.gaps[g];
      const std::uint32_t leaves = buckets_.of_end(gap.use) - shift,
                          due = buckets_.of_start(gap.next) - shift;
      if (leaves >= due) continue;
      group.pieces.push_back({.leaves = leaves, .due = due, .gap = g});
      const auto replays = static_cast<std::uint32_t>(gap.replays.size());
      key.insert(key.end(), {static_cast<std::uint32_t>(g), leaves, due, gap.fetched, replays});
      if (replays > 0) key.insert(key.end(), {gap.use, gap.next});
      key.insert(key.end(), gap.replays.begin(), gap.replays.end());
    }
    if (group.pieces.empty()) continue;
    const auto [at, added] = known.emplace(key, groups_.size());
    if (added) groups_.push_back(std::move(group));
    Group& mine = groups_[at->second];
    mine.mib += static_cast<double>(facts_.storages[version.storage].bytes) / kMiB;
    mine.members.push_back(v);
  }
  for (const Group& group : groups_)
    total_mib_ += group.mib * static_cast<double>(group.pieces.size());
}

void BoundProgram::add_streams() {
  const auto column = [&](double bytes) { return program_.column(0, bytes / kMiB); };
  for (std::uint32_t j = 0; j < size_; ++j)
    if (const std::uint32_t k = buckets_.checkpoint(j); facts_.streamed[k]) {
      const OperandBytes& of = facts_.operands[k];
      streams_[j] = {column(of.read), column(of.written), column(of.updated)};
    }
}

// No solution of least cost waits longer than moving everything to the last tier and back, alone,
// and what passes through an op besides.
void BoundProgram::add_stalls() {
  const auto last = static_cast<std::uint32_t>(machine_.tiers.size() - 1);
  const double us = total_mib_ * kMiB * (1 / rate(machine_, 0, last) + 1 / rate(machine_, last, 0));
  const PassingCost cost = passing_cost(machine_);
  const double passing_ms =
      std::max({cost.in + cost.out, cost.turn_in + cost.turn_out}) + 2 * cost.processors;
  for (std::uint32_t j = 0; j < size_; ++j) {
    const double passing =
        streams_.contains(j) ? facts_.operands[buckets_.checkpoint(j)].sum() / kMiB : 0;
    stall_.push_back(program_.column(0, us / 1e3 + passing * passing_ms + 1, 1));
  }
}

BoundProgram::Level BoundProgram::level(double upper) {
  Level level;
  for (std::uint32_t j = 0; j < size_; ++j) {
    level.at.push_back(program_.column(0, upper));
    level.change.push_back(program_.row(0, 0));
  }
  for (std::uint32_t j = 0; j < size_; ++j) {
    program_.add(level.change[j], level.at[j], 1);
    program_.add(level.change[j], level.at[(j + size_ - 1) % size_], -1);
  }
  return level;
}

void BoundProgram::change(const Level& level, std::uint32_t interval, Column column,
                          double amount) {
  program_.add(level.change[interval % size_], column, -amount);
}

void BoundProgram::add_tier(double ms_per_mib) {
  Flows f;
  for (auto* level_of : {&f.uncopied, &f.early, &f.copied, &f.left})
    *level_of = level(2 * total_mib_);
  for (std::uint32_t j = 0; j < size_; ++j) {
    f.out.push_back(program_.column(0, total_mib_, ms_per_mib));
    f.in.push_back(program_.column(0, total_mib_, ms_per_mib));
    change(f.uncopied, j, f.out[j], -1);
    change(f.copied, j, f.out[j], 1);
    change(f.early, j, f.in[j], 1);
    change(f.copied, j, f.in[j], -1);
    change(f.left, j, f.in[j], -1);
  }
  // What the last checkpoint leaves to the next step, by both ways of counting.
  f.left_start = program_.row(0, 0);
  program_.add(f.left_start, f.left.at[size_ - 1], 1);
  program_.add(f.left_start, f.early.at[size_ - 1], 1);
  f.copied_start = program_.row(0, 0);
  for (const Level* l : {&f.uncopied, &f.copied, &f.early})
    program_.add(f.copied_start, l->at[size_ - 1], 1);
  flows_.push_back(std::move(f));
}

void BoundProgram::add_links() {
  for (const Passage& p : passages(machine_))
    for (std::uint32_t j = 0; j < size_; ++j) {
      const Row row = program_.row(-kInfinity, p.mib_per_ms * buckets_.us(j) / 1e3);
      for (const auto& [t, weight] : p.out) program_.add(row, flows_[t - 1].out[j], weight);
      for (const auto& [t, weight] : p.in) program_.add(row, flows_[t - 1].in[j], weight);
      program_.add(row, stall_[j], -p.mib_per_ms);
    }
}

// Bytes that flow while ops compute make these as much longer as the simulator says. While nothing
// computes they cost no processor time, but no more of them flow then than the links carry.
void BoundProgram::add_processors() {
  if (moving_us(machine_, kMiB) <= 0) return;
  for (std::uint32_t j = 0; j < size_; ++j)
    if (!streams_.contains(j)) add_stall(j, 0);
}

// A row that says: the stall of the interval is at least `ms`, and longer by what flows.
BoundProgram::Row BoundProgram::add_stall(std::uint32_t interval, double ms) {
  const double flowing = flowing_ms_per_mib(machine_);
  const Row row = program_.row(ms, kInfinity);
  program_.add(row, stall_[interval], 1);
  if (flowing <= 0) return row;
  for (const Flows& f : flows_)
    for (Column bytes : {f.out[interval], f.in[interval]}) program_.add(row, bytes, -flowing);
  return row;
}

// An op takes as long as what it lets pass takes on the links. If that is less than the op's own
// time, it takes the processor time besides.
void BoundProgram::add_streaming() {
  const PassingCost cost = passing_cost(machine_);
  for (const auto& [j, stream] : streams_) {
    const double ms = profile_.ops[buckets_.checkpoint(j)].us / 1e3;
    const auto least = [&](double own_ms, double in, double out) {
      const Row row = add_stall(j, -own_ms);
      program_.add(row, stream.read, -in);
      program_.add(row, stream.written, -out);
      program_.add(row, stream.updated, -in - out);
    };
    least(0, cost.processors, cost.processors);
    least(ms, cost.in, 0);
    least(ms, 0, cost.out);
    least(ms, cost.turn_in, cost.turn_out);
  }
}

// A gap leaves with bytes that are copied for it (fresh), and with bytes that an earlier gap of the
// same version had copied.
void BoundProgram::add_copies(Group& group, std::size_t tier) {
  std::vector<Column> copied_before;
  for (Piece& piece : group.pieces) {
    piece.away.resize(flows_.size());
    if (group.copied || !copied_before.empty()) {
      const Column again = program_.column(0, group.mib);
      piece.away[tier].push_back(again);
      add_leaving(group, piece, tier, again, false);
      if (!group.copied) {
        const Row row = program_.row(0, kInfinity);
        program_.add(row, again, -1);
        for (Column c : copied_before) program_.add(row, c, 1);
      }
    }
    if (group.copied) continue;
    const Column fresh = program_.column(0, group.mib);
    piece.away[tier].push_back(fresh);
    add_leaving(group, piece, tier, fresh, true);
    copied_before.push_back(fresh);
  }
}

void BoundProgram::add_leaving(const Group& group, const Piece& piece, std::size_t tier,
                               Column column, bool fresh) {
  const Flows& f = flows_[tier];
  const bool fetched = facts_.versions[group.members.front()].gaps[piece.gap].fetched;
  if (fresh) change(f.uncopied, group.made, column, 1);
  if (!fresh) change(f.copied, piece.leaves, column, 1);
  change(f.left, piece.leaves, column, 1);
  if (fetched) {
    change(f.early, piece.due, column, -1);
  } else {
    change(f.copied, piece.due, column, -1);
    change(f.left, piece.due, column, -1);
  }
  // A version that ends within the step leaves nothing to the next.
  if (group.pieces.back().due < size_) return;
  const double left = piece.leaves < size_ ? 1 : 0, back = piece.due < size_ ? 1 : 0;
  program_.add(f.left_start, column, back - left);
  program_.add(f.copied_start, column, back - (fresh ? 1 : left));
}

void BoundProgram::add_remaking(Group& group) {
  for (Piece& piece : group.pieces) {
    const WantedGap& gap = facts_.versions[group.members.front()].gaps[piece.gap];
    if (gap.replays.empty()) continue;
    piece.remade = program_.column(0, group.mib);
    change(remade_, piece.leaves, piece.remade, 1);
    change(remade_, piece.due, piece.remade, -1);
    if (piece.due >= size_) program_.add(remade_start_, piece.remade, -1);
    for (std::uint32_t op : gap.replays)
      if (profile_.ops[op].us > 0)
        windows_[op].push_back({gap.use, gap.next, group.mib, piece.remade});
  }
}

void BoundProgram::add_sizes(Group& group) {
  for (const Piece& piece : group.pieces) {
    const Row row = program_.row(-kInfinity, group.mib);
    for (const auto& columns : piece.away)
      for (Column c : columns) program_.add(row, c, 1);
    if (piece.remade >= 0) program_.add(row, piece.remade, 1);
  }
}

// What is away in all tiers together is what memory lacks. All but the last tier are limited.
void BoundProgram::add_capacity() {
  for (std::uint32_t j = 0; j < size_; ++j) {
    if (excess_mib(j) <= 0) continue;
    const Row copied = program_.row(excess_mib(j), kInfinity),
              left = program_.row(excess_mib(j), kInfinity);
    for (Row row : {copied, left}) {
      program_.add(row, remade_.at[j], 1);
      if (const auto at = streams_.find(j); at != streams_.end())
        for (Column c : {at->second.read, at->second.written, at->second.updated})
          program_.add(row, c, 1);
    }
    for (std::size_t t = 0; t + 1 < flows_.size(); ++t) {
      const auto capacity = static_cast<double>(machine_.tiers[t + 1].capacity) / kMiB;
      const Column away =
          program_.column(0, capacity > 0 ? std::min(capacity, total_mib_) : total_mib_);
      for (Column most : {flows_[t].copied.at[j], flows_[t].left.at[j]}) {
        const Row row = program_.row(-kInfinity, 0);
        program_.add(row, away, 1);
        program_.add(row, most, -1);
      }
      program_.add(copied, away, 1);
      program_.add(left, away, 1);
    }
    program_.add(copied, flows_.back().copied.at[j], 1);
    program_.add(left, flows_.back().left.at[j], 1);
  }
}

// One replay serves every gap of that op's outputs that is open then: it is enough to look at
// replays right before the end of one of them.
void BoundProgram::add_replays() {
  if (windows_.empty()) return;
  const double most_ms = ideal_us(profile_) / 1e3 * static_cast<double>(profile_.ops.size());
  const Level waiting = level(most_ms), done = level(most_ms);
  const Row start = program_.row(0, 0);
  for (const Level* l : {&waiting, &done}) program_.add(start, l->at[size_ - 1], 1);
  for (std::uint32_t j = 0; j < size_; ++j) {
    const Column replayed = program_.column(0, most_ms);
    change(waiting, j, replayed, -1);
    change(done, j, replayed, 1);
    const Row row = program_.row(0, kInfinity);
    program_.add(row, stall_[j], 1);
    program_.add(row, replayed, -1);
  }
  for (const auto& [op, windows] : windows_) {
    const double ms = profile_.ops[op].us / 1e3;
    std::map<std::uint32_t, std::uint32_t> opens;  // by end: the earliest beginning
    for (const Window& w : windows) {
      const auto at = opens.emplace(w.next, w.use).first;
      at->second = std::min(at->second, w.use);
    }
    std::map<std::uint32_t, Column> replays;
    for (const auto& [next, use] : opens) {
      const Column times = replays[next] = program_.column(0, 1);
      const std::uint32_t from = buckets_.of_end(use), to = buckets_.of_start(next);
      change(waiting, from, times, ms);
      change(done, to, times, -ms);
      if (from < size_ && to >= size_) program_.add(start, times, -ms);
    }
    for (const Window& w : windows) {
      const Row row = program_.row(0, kInfinity);
      for (const auto& [next, times] : replays)
        if (next > w.use && next <= w.next) program_.add(row, times, w.mib);
      program_.add(row, w.remade, -1);
    }
  }
}

Bound BoundProgram::solve(double time_limit_s) const {
  const auto solution = program_.solve(time_limit_s);
  Bound bound{.step_us = ideal_us(profile_) + std::max(0.0, solution.lower_bound) * 1e3,
              .buckets = size_,
              .exact = solution.optimal};
  if (bound.exact) bound.gaps = shares(solution.value);
  return bound;
}

std::vector<GapShare> BoundProgram::shares(const std::vector<double>& value) const {
  std::vector<GapShare> all;
  const auto ops = static_cast<std::uint32_t>(profile_.ops.size());
  const auto at = [&](Column c) { return std::max(0.0, value[static_cast<std::size_t>(c)]); };
  for (const Group& group : groups_)
    for (const Piece& piece : group.pieces) {
      GapShare share{.evicted = std::vector<double>(flows_.size(), 0)};
      double sum = 0;
      for (std::size_t t = 0; t < flows_.size(); ++t) {
        for (Column c : piece.away[t]) share.evicted[t] += at(c) / group.mib;
        sum += share.evicted[t];
      }
      if (piece.remade >= 0) share.recomputed = at(piece.remade) / group.mib;
      if (sum + share.recomputed < kNothing) continue;
      for (std::size_t v : group.members) {
        const Version& version = facts_.versions[v];
        const WantedGap& gap = version.gaps[piece.gap];
        const std::uint32_t lap = gap.use >= ops ? ops : 0;
        share.storage = version.storage;
        share.use = gap.use - lap;
        share.next = gap.next - lap;
        all.push_back(share);
      }
    }
  std::ranges::sort(all, {}, [](const GapShare& s) { return std::tuple(s.storage, s.use); });
  return all;
}

}  // namespace sentinel::plan
