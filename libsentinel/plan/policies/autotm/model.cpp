// Builds AutoTM's integer program, and turns its solution into moves.
#include "plan/policies/autotm/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "base/units.h"
#include "plan/solver/processor_share.h"
#include "plan/step/rates.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;
constexpr double kSolverShare =
    0.8;  // of the time that is left: CBC ends late, and then the plan is made

}  // namespace

AutoTmModel::AutoTmModel(const Profile& profile, const Machine& machine, const PlanOptions& options)
    : machine_(machine),
      options_(options),
      ops_(static_cast<std::uint32_t>(profile.ops.size())),
      in_place_(machine.tiers[1].byte_addressable),
      storages_(plan::storages(profile)),
      uses_(storages_.size()),
      columns_(storages_.size()),
      held_(std::vector<std::uint64_t>(ops_, 0)) {
  const Footprint footprint(profile, {}, machine.granule_bytes);
  for (const Storage& s : storages_) {
    bytes_.push_back(0);
    for (UnitId u : footprint.units(s.tensor)) bytes_.back() += footprint.bytes(u);
    const auto size = static_cast<double>(s.bytes);
    read_us_.push_back(machine.tiers[1].latency_us + size / rate(machine, 1, 0));
    write_us_.push_back(machine.tiers[1].latency_us + size / rate(machine, 0, 1));
  }
  find_uses(profile);
}

void AutoTmModel::find_uses(const Profile& profile) {
  const Openings openings(profile, storages_);
  const Writes writes(profile);
  for (std::uint32_t i = 0; i < storages_.size(); ++i) {
    const Storage& s = storages_[i];
    auto& uses = uses_[i];
    std::uint32_t epoch = s.persistent ? kNone : 0;
    for (std::uint32_t position : s.uses) {
      const TensorId t = s.at(position, ops_);
      const OpId op(position % ops_);
      const Op& o = profile.ops[op.index()];
      const bool named_in = std::ranges::binary_search(o.in, t),
                 named_out = std::ranges::binary_search(o.out, t);
      if (machine_.exclusive || writes(t, op)) epoch = static_cast<std::uint32_t>(uses.size());
      const auto pages = openings.of(op, i, named_in || !named_out, named_out);
      uses.push_back({.fast = !in_place_,
                      .in_place_us = in_place_ ? openings.in_place_us(machine_, 1, pages) : 0,
                      .epoch = epoch});
    }
    for (AutoTmUse& use :
         uses)  // before the first write of a step, the last one of the step before
      if (use.epoch == kNone) use.epoch = epoch;
  }
}

bool AutoTmModel::has_gap(std::uint32_t i, std::size_t u) const {
  return storages_[i].persistent || u + 1 < uses_[i].size();
}

std::uint32_t AutoTmModel::next(std::uint32_t i, std::size_t u) const {
  const auto& positions = storages_[i].uses;
  if (u + 1 < positions.size()) return positions[u + 1];
  return storages_[i].persistent ? positions.front() + ops_ : storages_[i].last + 1;
}

void AutoTmModel::raise(std::uint32_t i, std::uint32_t begin, std::uint32_t end,
                        std::int64_t sign) {
  if (begin < end) held_.add(begin, end, sign * static_cast<std::int64_t>(bytes(i)));
}

bool AutoTmModel::fits(std::uint32_t begin, std::uint32_t end, std::uint64_t more) const {
  if (begin >= end) return true;
  const std::int64_t most = held_.most(begin, end);
  return most + static_cast<std::int64_t>(more) <= static_cast<std::int64_t>(options_.fast_bytes);
}

std::uint64_t AutoTmModel::peak_if_all_kept() const {
  AutoTmModel all = *this;
  all.held_ = Level(std::vector<std::uint64_t>(ops_, 0));
  for (std::uint32_t i = 0; i < storages_.size(); ++i)
    all.raise(i, storages_[i].first, storages_[i].last + 1, 1);
  return all.peak();
}

std::uint64_t AutoTmModel::peak() const {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, held_.most(0, ops_)));
}

void AutoTmModel::refuse_what_cannot_fit() const {
  if (in_place_) return;
  std::vector<std::uint64_t> needed(ops_, 0);
  for (std::uint32_t i = 0; i < storages_.size(); ++i)
    for (std::size_t u = 0; u < uses_[i].size(); ++u) {
      const std::uint32_t end = has_gap(i, u) ? storages_[i].uses[u] + 1 : next(i, u);
      for (std::uint32_t p = storages_[i].uses[u]; p < end; ++p) needed[p % ops_] += bytes(i);
    }
  const auto most = std::ranges::max_element(needed);
  if (most == needed.end() || *most <= options_.fast_bytes) return;
  throw Error(fmt::format("op {} needs {} of fast memory at once, {} are allowed",
                          most - needed.begin(), print_bytes(*most),
                          print_bytes(options_.fast_bytes)));
}

double AutoTmModel::seconds_left() const {
  return std::max(0.0, options_.time_limit_s - seconds_since(begin_));
}

// The largest storages, as many as the program may have: its presolve and first relaxation take
// their time whatever is left of it.
std::vector<std::uint32_t> AutoTmModel::modelled() const {
  std::vector<std::uint32_t> order(storages_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](auto a, auto b) { return bytes(a) > bytes(b); });
  const double share = std::min(1.0, options_.time_limit_s * processor_share() / kSecondsOfMost);
  const auto most = static_cast<std::size_t>(share * static_cast<double>(kMostBinaries));
  std::size_t binaries = 0, n = 0;
  while (n < order.size() && binaries + 2 * uses_[order[n]].size() <= most)
    binaries += 2 * uses_[order[n++]].size();
  order.resize(n);
  std::ranges::sort(order);
  return order;
}

void AutoTmModel::add_storage(IntegerProgram& program, std::uint32_t i) {
  const auto& uses = uses_[i];
  auto& columns = columns_[i];
  for (const AutoTmUse& use : uses)
    columns.push_back(
        {program.add_column(-use.in_place_us, in_place_), program.add_column(0, true)});
  std::vector<std::uint32_t> written(uses.size(), kNone);  // per epoch
  for (std::size_t u = 0; u < uses.size(); ++u) {
    if (!in_place_) program.rows.push_back({{{columns[u].fast, 1}}, 1, 1});
    if (!has_gap(i, u)) {
      program.rows.push_back({{{columns[u].kept, 1}}, 0, 0});
      continue;
    }
    const Columns& after = columns[(u + 1) % uses.size()];
    program.rows.push_back({{{columns[u].fast, 1}, {columns[u].kept, -1}}, 0, 1});
    if (&after != &columns[u])
      program.rows.push_back({{{after.fast, 1}, {columns[u].kept, -1}}, 0, 1});
    program.cost[after.fast] += read_us_[i];
    program.cost[columns[u].kept] -= read_us_[i];
    const std::uint32_t epoch = uses[u].epoch;
    if (epoch == kNone) continue;  // never written
    if (written[epoch] == kNone) written[epoch] = program.add_column(write_us_[i], false);
    IntegerProgram::Row row{.low = -1, .high = 3};
    row.terms = {{written[epoch], 1}, {columns[u].kept, 1}};
    if (epoch == u) {
      row.terms.push_back({columns[u].fast, -1});
      row.low = 0;
    } else {
      row.terms.push_back({columns[u].fast, -1});
      row.terms.push_back({columns[epoch].fast, -1});
    }
    program.rows.push_back(std::move(row));
  }
}

void AutoTmModel::add_capacity(IntegerProgram& program,
                               const std::vector<std::uint32_t>& chosen) const {
  std::vector<double> all(ops_, 0);
  for (std::uint32_t i : chosen)
    for (std::uint32_t p = storages_[i].first; p <= storages_[i].last; ++p)
      all[p % ops_] += static_cast<double>(bytes(i));
  const double scale = static_cast<double>(options_.fast_bytes);
  std::vector<std::uint32_t> row_of(ops_, kNone);
  const std::size_t stretch = (ops_ + kMostRows - 1) / kMostRows;
  for (std::size_t begin = 0; begin < ops_; begin += stretch) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to =
        all.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(begin + stretch, ops_));
    const auto k = static_cast<std::size_t>(std::max_element(from, to) - all.begin());
    const double left = scale - static_cast<double>(held_.at(k));
    if (all[k] <= left) continue;
    row_of[k] = static_cast<std::uint32_t>(program.rows.size());
    program.rows.push_back({.low = -1e30, .high = left / scale});
  }
  for (std::uint32_t i : chosen) {
    const double share = static_cast<double>(bytes(i)) / scale;
    for (std::size_t u = 0; u < uses_[i].size(); ++u) {
      const std::uint32_t use = storages_[i].uses[u];
      for (std::uint32_t p = use; p < next(i, u); ++p) {
        if (row_of[p % ops_] == kNone) continue;
        const bool used = p == use || !has_gap(i, u);
        program.rows[row_of[p % ops_]].terms.push_back(
            {used ? columns_[i][u].fast : columns_[i][u].kept, share});
      }
    }
  }
}

IntegerProgram AutoTmModel::build(const std::vector<std::uint32_t>& chosen) {
  IntegerProgram program;
  for (std::uint32_t i : chosen) add_storage(program, i);
  add_capacity(program, chosen);
  return program;
}

bool AutoTmModel::take(std::uint32_t i, std::size_t u) {
  const std::uint32_t begin = storages_[i].uses[u];
  const std::uint32_t end = has_gap(i, u) ? begin + 1 : next(i, u);
  if (in_place_ && (uses_[i][u].fast || !fits(begin, end, bytes(i)))) return uses_[i][u].fast;
  raise(i, begin, end, 1);
  return uses_[i][u].fast = true;
}

bool AutoTmModel::keep(std::uint32_t i, std::size_t u) {
  auto& uses = uses_[i];
  if (!has_gap(i, u) || uses[u].kept || !uses[u].fast || !uses[(u + 1) % uses.size()].fast)
    return uses[u].kept;
  const std::uint32_t begin = storages_[i].uses[u] + 1, end = next(i, u);
  if (!fits(begin, end, bytes(i))) return false;
  raise(i, begin, end, 1);
  return uses[u].kept = true;
}

void AutoTmModel::take_solution(const std::vector<std::uint32_t>& chosen,
                                const std::vector<double>& solution) {
  const auto yes = [&](std::uint32_t column) { return solution[column] > 0.5; };
  for (std::uint32_t i : chosen)
    for (std::size_t u = 0; u < uses_[i].size(); ++u)
      if (in_place_ && yes(columns_[i][u].fast)) take(i, u);
  for (std::uint32_t i : chosen)
    for (std::size_t u = 0; u < uses_[i].size(); ++u)
      if (yes(columns_[i][u].kept)) keep(i, u);
}

// What saves most for the room it takes first: storages as a whole where none of their uses is in
// fast memory, else single gaps.
void AutoTmModel::fill_greedily() {
  struct Candidate {
    double saved;
    std::uint32_t storage;
    std::size_t use;  // SIZE_MAX: the whole storage
  };
  std::vector<Candidate> candidates;
  for (std::uint32_t i = 0; i < storages_.size(); ++i) {
    const auto& uses = uses_[i];
    const auto size = static_cast<double>(bytes(i));
    if (std::ranges::none_of(uses, &AutoTmUse::fast)) {
      const double life = storages_[i].last - storages_[i].first + 1.0;
      double saved = 0;
      for (const AutoTmUse& use : uses) saved += use.in_place_us;
      if (saved > 0) candidates.push_back({saved / (size * life), i, SIZE_MAX});
      continue;
    }
    for (std::size_t u = 0; u < uses.size(); ++u)
      if (has_gap(i, u) && !uses[u].kept)
        candidates.push_back({(read_us_[i] + write_us_[i]) /
                                  (size * std::max(1.0, 0.0 + next(i, u) - storages_[i].uses[u])),
                              i, u});
  }
  std::ranges::stable_sort(candidates, std::greater{}, &Candidate::saved);
  for (const Candidate& c : candidates) {
    if (c.use != SIZE_MAX) {
      keep(c.storage, c.use);
      continue;
    }
    if (!fits(storages_[c.storage].first, storages_[c.storage].last + 1, bytes(c.storage)))
      continue;
    for (std::size_t u = 0; u < uses_[c.storage].size(); ++u) take(c.storage, u);
    for (std::size_t u = 0; u < uses_[c.storage].size(); ++u) keep(c.storage, u);
  }
}

std::uint64_t AutoTmModel::solve() {
  if (!in_place_)  // what is used is in fast memory
    for (std::uint32_t i = 0; i < storages_.size(); ++i)
      for (std::size_t u = 0; u < uses_[i].size(); ++u) take(i, u);
  const auto chosen = modelled();
  SearchLimits limits{.nodes = options_.effort > 0 ? options_.effort : kNodes};
  // Capacity rows count what the modelled uses take themselves.
  const Level taken = held_;
  if (!in_place_) {
    for (std::uint32_t i : chosen)
      for (std::size_t u = 0; u < uses_[i].size(); ++u)
        raise(i, storages_[i].uses[u], has_gap(i, u) ? storages_[i].uses[u] + 1 : next(i, u), -1);
  }
  const IntegerProgram program = build(chosen);
  held_ = taken;
  limits.seconds = kSolverShare * seconds_left();
  if (const auto solution = plan::solve(program, limits)) take_solution(chosen, *solution);
  fill_greedily();
  return limits.nodes;
}

double AutoTmModel::cost_us() const {
  double sum = 0;
  for (std::uint32_t i = 0; i < storages_.size(); ++i) {
    const auto& uses = uses_[i];
    std::vector<bool> written(uses.size(), false);
    for (std::size_t u = 0; u < uses.size(); ++u) {
      if (!uses[u].fast) sum += uses[u].in_place_us;
      if (!has_gap(i, u) || uses[u].kept) continue;
      if (uses[(u + 1) % uses.size()].fast) sum += read_us_[i];
      const std::uint32_t epoch = uses[u].epoch;
      if (!uses[u].fast || epoch == kNone || !uses[epoch].fast || written[epoch]) continue;
      sum += write_us_[i];
      written[epoch] = true;
    }
  }
  return sum;
}

bool AutoTmModel::hold(std::uint32_t storage, std::uint32_t position) {
  if (!fits(position, position + 1, bytes(storage))) return false;
  raise(storage, position, position + 1, 1);
  return true;
}

}  // namespace sentinel::plan
