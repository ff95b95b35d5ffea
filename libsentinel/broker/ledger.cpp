// Orders shrinks first, and growth only into what is free.
#include "broker/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace sentinel {

Ledger::Ledger(Settings settings) : settings_(settings) {}

// ---------------------------------------------------------------- what happens

JobId Ledger::joins(const Need& need) {
  const auto id = next_++;
  auto& job = jobs_[id];
  job.need = bounded(need);
  return id;
}

// Nobody can use more than there is.
Need Ledger::bounded(Need need) const {
  need.most = std::max(need.least, std::min(need.most, settings_.total));
  return need;
}

bool Ledger::could_fit(const Need& need) const { return need.least <= settings_.total; }

JobId Ledger::remember(const Need& need, std::uint64_t counted) {
  const auto id = joins(need);
  auto& job = jobs_[id];
  job.state = State::absent;
  job.held = job.ordered = counted;
  job.freezes = true;
  return id;
}

void Ledger::returns(JobId id, const Need& need, std::uint64_t holds) {
  auto& job = jobs_.at(id);
  job.need = bounded(need);
  job.need.least = std::min(need.least, holds);
  job.held = job.ordered = holds;
  job.freezes = false;
  job.state = State::settled;
}

void Ledger::goes_away(JobId id) {
  auto& job = jobs_.at(id);
  if (job.admitted()) job.state = State::absent;
}

void Ledger::ends(JobId id) {
  if (jobs_.erase(id) != 0) suggested_.clear();
}

// What it cannot work without is no more than it has: it works already.
void Ledger::needs(JobId id, const Need& need) {
  auto& job = jobs_.at(id);
  const auto most_least = job.admitted() ? std::max(job.need.least, job.ordered) : need.least;
  job.need = bounded(need);
  job.need.least = std::min(need.least, most_least);
}

void Ledger::answers(JobId id, std::uint64_t number, std::uint64_t holds, std::uint64_t now_ms) {
  auto& job = jobs_.at(id);
  if (job.number != number || (job.state != State::ordered && job.state != State::silent)) return;
  const auto kept = std::min(holds, job.counted());
  if (kept > job.ordered) {  // it could not shrink
    job.ordered = kept;
    job.keeps_until_ms = now_ms + settings_.pause_ms;
  }
  job.held = job.ordered;
  job.state = State::settled;
}

// ---------------------------------------------------------------- figures

std::uint64_t Ledger::counted() const {
  std::uint64_t sum = 0;
  for (const auto& [id, job] : jobs_) sum += job.counted();
  return sum;
}

std::uint64_t Ledger::free() const {
  return settings_.total - std::min(settings_.total, counted());
}

bool Ledger::frozen() const {
  return std::ranges::any_of(jobs_, [](const auto& job) { return job.second.freezes; });
}

bool Ledger::is_asked(const Job& job, std::uint64_t now_ms) const {
  return (job.state == State::settled || job.state == State::ordered) &&
         job.keeps_until_ms <= now_ms;
}

bool Ledger::matters(std::uint64_t now, std::uint64_t then) const {
  const auto change = now > then ? now - then : then - now;
  return change >= std::max(settings_.ignored, now / 32);
}

std::optional<std::uint64_t> Ledger::wakes_at() const {
  std::optional<std::uint64_t> first;
  const auto at = [&](std::uint64_t when) { first = std::min(first.value_or(when), when); };
  for (const auto& [id, job] : jobs_) {
    if (job.state == State::ordered) at(job.since_ms + settings_.patience_ms);
    if (job.state == State::settled && job.keeps_until_ms != 0) at(job.keeps_until_ms);
  }
  return first;
}

std::string Ledger::why_waiting(JobId id) const {
  const auto& job = jobs_.at(id);
  const auto absent = std::ranges::count_if(jobs_, [](const auto& j) { return j.second.freezes; });
  if (absent != 0)
    return fmt::format("the broker has begun anew, and {} of its jobs {} to come back first",
                       absent, absent == 1 ? "has" : "have");
  const auto before = std::ranges::count_if(jobs_, [&](const auto& other) {
    return other.first < id && other.second.state == State::waiting;
  });
  return fmt::format("{} are needed; {} of {} are taken{}", print_bytes(job.need.least),
                     print_bytes(counted()), print_bytes(settings_.total),
                     before != 0 ? fmt::format(", and {} jobs wait in front", before) : "");
}

// ---------------------------------------------------------------- orders

void Ledger::mark_silent(std::uint64_t now_ms) {
  for (auto& [id, job] : jobs_) {
    if (job.state == State::ordered && now_ms >= job.since_ms + settings_.patience_ms)
      job.state = State::silent;
    if (job.keeps_until_ms != 0 && job.keeps_until_ms <= now_ms) job.keeps_until_ms = 0;
  }
}

// Of the jobs that are asked, and of those that can be admitted beside them: the first that does
// not fit keeps all behind it waiting.
Ledger::Targets Ledger::targets(std::uint64_t now_ms) const {
  std::uint64_t fixed = 0, least = 0;
  for (const auto& [id, job] : jobs_)
    if (job.admitted() && !is_asked(job, now_ms)) fixed += job.counted();
  const auto room = settings_.total - std::min(settings_.total, fixed);
  std::vector<Need> needs;
  Targets targets;
  std::vector<JobId> order;  // as they take part
  const auto takes_part = [&](JobId id, const Need& need) {
    least += need.least;
    order.push_back(id);
    needs.push_back(need);
  };
  for (const auto& [id, job] : jobs_)
    if (job.admitted() && is_asked(job, now_ms)) takes_part(id, job.need);
  for (const auto& [id, job] : jobs_) {
    if (job.admitted()) continue;
    if (least + job.need.least > room) break;
    takes_part(id, job.need);
  }
  const auto shares = divide(room, needs, settings_.grain);
  for (std::size_t at = 0; at < order.size(); ++at) targets[order[at]] = shares[at];
  std::uint64_t suggested = 0;
  const bool usable = suggested_.size() == targets.size() &&
                      std::ranges::all_of(suggested_, [&](const auto& share) {
                        const auto found = targets.find(share.first);
                        if (found == targets.end()) return false;
                        suggested += share.second;
                        return share.second >= jobs_.at(share.first).need.least;
                      });
  if (usable && suggested <= room)
    for (auto& [id, bytes] : targets) bytes = suggested_.at(id);
  return targets;
}

Ledger::Order Ledger::order(JobId id, Job& job, std::uint64_t bytes, std::uint64_t now_ms) {
  job.ordered = bytes;
  job.state = State::ordered;
  job.since_ms = now_ms;
  return {.job = id, .number = ++job.number, .bytes = bytes};
}

// What nobody asks for is left where it is: a new plan costs time. Where somebody waits, every byte
// matters.
void Ledger::shrink(const Targets& targets, std::uint64_t now_ms, std::vector<Order>& orders) {
  std::uint64_t wanted = 0;
  for (const auto& [id, target] : targets)
    wanted += target - std::min(target, jobs_.at(id).counted());
  if (wanted <= free()) return;
  const bool waited_for =
      std::ranges::any_of(targets, [&](const auto& t) { return !jobs_.at(t.first).admitted(); });
  for (const auto& [id, target] : targets) {
    auto& job = jobs_.at(id);
    if (job.state != State::settled || target >= job.ordered) continue;
    if (waited_for || matters(job.ordered, target))
      orders.push_back(order(id, job, target, now_ms));
  }
}

// As long as more is about to become free, nobody takes less than is meant for him.
void Ledger::grow(const Targets& targets, std::uint64_t now_ms, std::vector<Order>& orders) {
  const bool shrinking = std::ranges::any_of(jobs_, [](const auto& job) {
    return job.second.state == State::ordered && job.second.ordered < job.second.held;
  });
  const auto grows = [&](JobId id, std::uint64_t target) {
    auto& job = jobs_.at(id);
    const auto has = job.counted(), wanted = target - std::min(target, has);
    const auto each = std::min(wanted, free());
    if (wanted == 0 || (each < wanted && shrinking)) return;
    auto bytes = has + each;
    if (each < wanted) bytes = std::max(has, bytes / settings_.grain * settings_.grain);
    if (job.admitted() ? !matters(has, bytes) : bytes < job.need.least) return;
    orders.push_back(order(id, job, bytes, now_ms));
  };
  for (const bool admitted : {false, true})
    for (const auto& [id, target] : targets)
      if (const auto& job = jobs_.at(id);
          job.admitted() == admitted && (!admitted || job.state == State::settled))
        grows(id, target);
}

std::vector<Ledger::Order> Ledger::orders(std::uint64_t now_ms) {
  std::vector<Order> orders;
  mark_silent(now_ms);
  if (frozen()) return orders;
  const auto targets = this->targets(now_ms);
  shrink(targets, now_ms, orders);
  grow(targets, now_ms, orders);
  return orders;
}

}  // namespace sentinel
