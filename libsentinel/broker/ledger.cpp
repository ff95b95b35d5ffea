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
  targets_.reset();
  const auto whole = as_rank(need);
  jobs_[id].need = whole;
  arrives(whole);
  return id;
}

// One more than there are of a training is on its own: another process of a rank, say.
Need Ledger::as_rank(Need need) const {
  if (need.training != 0 && ranks_of(need.training) >= need.ranks) need.training = 0;
  if (need.training == 0) need.ranks = 1;
  return bounded(need);
}

std::uint32_t Ledger::ranks_of(std::uint64_t training) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      jobs_, [&](const auto& job) { return job.second.need.training == training; }));
}

void Ledger::arrives(const Need& need) {
  if (need.training == 0) return;
  auto& to_come = trainings_.try_emplace(need.training, need.ranks).first->second;
  to_come -= to_come != 0 ? 1 : 0;
}

// Nobody can use more than there is.
Need Ledger::bounded(Need need) const {
  need.most = std::max(need.least, std::min(need.most, settings_.total));
  if (need.usual != 0) need.usual = std::clamp(need.usual, need.least, need.most);
  return need;
}

bool Ledger::could_fit(const Need& need) const {
  return need.least <= settings_.total / need.ranks;
}

JobId Ledger::remember(const Need& need, std::uint64_t counted) {
  const auto id = joins(need);
  auto& job = jobs_[id];
  job.state = State::absent;
  job.held = job.ordered = job.most = counted;
  job.freezes = true;
  return id;
}

void Ledger::returns(JobId id, const Need& need, std::uint64_t holds) {
  auto& job = jobs_.at(id);
  targets_.reset();
  if (job.need.training == need.training) {
    job.need = bounded(need);
  } else {  // the ledger's file does not say
    job.need = as_rank(need);
    arrives(job.need);
  }
  job.need.least = std::min(need.least, holds);
  job.held = job.ordered = job.most = holds;
  job.leased = 0;
  job.asked = {};
  job.freezes = false;
  job.state = State::settled;
}

void Ledger::goes_away(JobId id) {
  auto& job = jobs_.at(id);
  targets_.reset();
  job.asked = {};
  if (job.admitted()) job.state = State::absent;
}

void Ledger::ends(JobId id) {
  targets_.reset();
  const auto job = jobs_.find(id);
  if (job == jobs_.end()) return;
  const auto training = job->second.need.training;
  const bool waited = !job->second.admitted();
  jobs_.erase(job);
  suggested_.clear();
  if (training == 0) return;
  if (ranks_of(training) == 0)
    trainings_.erase(training);
  else if (waited)
    ++trainings_.at(training);  // it may ask again
}

void Ledger::suggest(std::map<JobId, std::uint64_t> shares) {
  targets_.reset();
  suggested_ = std::move(shares);
}

// What it cannot work without is no more than it has, or has said before: it works already, or
// was found to fit.
void Ledger::needs(JobId id, const Need& need) {
  auto& job = jobs_.at(id);
  targets_.reset();
  const auto most_least = std::max(job.need.least, job.ordered);
  const auto training = job.need.training;
  const auto ranks = job.need.ranks;
  job.need = bounded(need);
  job.need.training = training, job.need.ranks = ranks;
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
  job.most = std::max(job.most, job.ordered);
  job.leased = 0;
  job.asked = {};
  if (job.state == State::silent || job.keeps_until_ms != 0) targets_.reset();
  job.state = State::settled;
}

// What it gives back is free whatever else is the case; what it wants it gets from lends().
void Ledger::asks(JobId id, std::uint64_t number, std::uint64_t wants, std::uint64_t holds) {
  auto& job = jobs_.at(id);
  if (job.leased > holds && !is_asked(job)) targets_.reset();
  job.leased = std::min(job.leased, holds);
  const auto turn = job.asked.bytes > job.leased ? job.asked.turn : ++turns_;
  if (job.state == State::settled) job.asked = {.number = number, .bytes = wants, .turn = turn};
}

// ---------------------------------------------------------------- figures

std::uint64_t Ledger::counted() const {
  std::uint64_t sum = 0;
  for (const auto& [id, job] : jobs_) sum += job.counted();
  return sum;
}

std::uint64_t Ledger::leased() const {
  std::uint64_t sum = 0;
  for (const auto& [id, job] : jobs_) sum += job.leased;
  return sum;
}

std::uint64_t Ledger::free() const {
  return settings_.total - std::min(settings_.total, counted());
}

bool Ledger::is_in(std::uint64_t training) const {
  return std::ranges::any_of(jobs_, [&](const auto& job) {
    return job.second.admitted() && job.second.need.training == training;
  });
}

std::uint64_t Ledger::to_come(std::uint64_t training) const {
  const auto found = trainings_.find(training);
  if (found == trainings_.end()) return 0;
  std::uint64_t least = 0;  // they are alike
  for (const auto& [id, job] : jobs_)
    if (job.need.training == training) least = std::max(least, job.need.least);
  return found->second * least;
}

std::uint64_t Ledger::to_admit(std::uint64_t training) const {
  auto bytes = to_come(training);
  for (const auto& [id, job] : jobs_)
    if (!job.admitted() && job.need.training == training) bytes += job.need.least;
  return bytes;
}

// Of what is free, for other ranks: of trainings that are in, and of its own.
std::uint64_t Ledger::kept_beside(JobId id) const {
  const auto& job = jobs_.at(id);
  const auto own = job.need.training;
  std::uint64_t bytes = 0;
  for (const auto& [training, of] : trainings_)
    if (training == own || is_in(training)) bytes += to_admit(training);
  return bytes - (own != 0 && !job.admitted() ? job.need.least : 0);
}

// With what bases are to grow by, and what those who wait are to be admitted with.
std::uint64_t Ledger::promised() const {
  std::uint64_t sum = to_come_;
  for (const auto& [id, job] : jobs_) {
    const auto target = targets_->find(id);
    sum += job.counted();
    if (target != targets_->end() && target->second.base > job.base() &&
        (!job.admitted() || matters(job.base(), target->second.base)))
      sum += target->second.base - job.base();
  }
  return sum;
}

bool Ledger::frozen() const {
  return std::ranges::any_of(jobs_, [](const auto& job) { return job.second.freezes; });
}

bool Ledger::is_asked(const Job& job) {
  return (job.state == State::settled || job.state == State::ordered) && job.keeps_until_ms == 0;
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
  const auto training = job.need.training;
  const bool together = training != 0 && !is_in(training);
  return fmt::format("{} are needed{}; {} of {} are taken{}",
                     print_bytes(together ? to_admit(training) : job.need.least),
                     together ? fmt::format(" by {} ranks together", job.need.ranks) : "",
                     print_bytes(counted()), print_bytes(settings_.total),
                     before != 0 ? fmt::format(", and {} jobs wait in front", before) : "");
}

// ---------------------------------------------------------------- orders

void Ledger::mark_silent(std::uint64_t now_ms) {
  for (auto& [id, job] : jobs_) {
    const bool silent =
        job.state == State::ordered && now_ms >= job.since_ms + settings_.patience_ms;
    const bool kept = job.keeps_until_ms != 0 && job.keeps_until_ms <= now_ms;
    if (silent) job.state = State::silent;
    if (kept) job.keeps_until_ms = 0;
    if (silent || kept) targets_.reset();
  }
}

// Of the jobs that are asked, and of those that can be admitted beside them: the first that does
// not fit keeps all behind it waiting.
const Ledger::Targets& Ledger::targets() {
  if (!targets_) targets_ = divided();
  return *targets_;
}

// Who waits, by arrival; but ranks whose training is in come first, and with a rank comes its
// training.
std::vector<JobId> Ledger::queue() const {
  std::vector<JobId> queue;
  for (const bool in : {true, false})
    for (const auto& [id, job] : jobs_) {
      const auto training = job.need.training;
      if (job.admitted() || std::ranges::find(queue, id) != queue.end()) continue;
      if (in != (training != 0 && is_in(training))) continue;
      queue.push_back(id);
      for (auto other = jobs_.upper_bound(id); training != 0 && other != jobs_.end(); ++other)
        if (!other->second.admitted() && other->second.need.training == training)
          queue.push_back(other->first);
    }
  return queue;
}

Ledger::Targets Ledger::divided() {
  std::uint64_t fixed = 0, least = 0;
  to_come_ = 0;
  for (const auto& [id, job] : jobs_)
    if (job.admitted() && !is_asked(job)) fixed += job.counted();
  for (const auto& [training, of] : trainings_)
    if (is_in(training)) to_come_ += to_come(training);
  auto room = settings_.total - std::min(settings_.total, fixed + to_come_);
  std::vector<Need> needs;
  Targets targets;
  std::vector<JobId> order;  // as they take part
  const auto takes_part = [&](JobId id, const Need& need) {
    least += need.least;
    order.push_back(id);
    needs.push_back(need);
  };
  for (const auto& [id, job] : jobs_)
    if (job.admitted() && is_asked(job)) takes_part(id, job.need);
  std::uint64_t training = 0;  // that of the rank before
  for (const auto id : queue()) {
    const auto& need = jobs_.at(id).need;
    const bool first = need.training != 0 && need.training != training && !is_in(need.training);
    if (least + (first ? to_admit(need.training) : need.least) > room) break;
    if (first) {
      to_come_ += to_come(need.training);
      room -= to_come(need.training);
    }
    training = need.training;
    takes_part(id, need);
  }
  const auto shares = share(room, needs, settings_.grain);
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
    for (auto& [id, share] : targets) share = {suggested_.at(id), suggested_.at(id)};
  return targets;
}

Ledger::Order Ledger::order(JobId id, Job& job, Share share, std::uint64_t now_ms) {
  job.ordered = share.base;
  job.most = std::max(share.base, share.most);
  job.state = State::ordered;
  job.since_ms = now_ms;
  return {.job = id, .number = ++job.number, .bytes = job.ordered, .most = job.most};
}

// What nobody asks for is left where it is: a new plan costs time. Where somebody waits, every byte
// matters, and leases end that stand in the way.
void Ledger::shrink(const Targets& targets, std::uint64_t now_ms, std::vector<Order>& orders) {
  std::uint64_t wanted = to_come_;
  std::vector<Share> shares;
  for (const auto& [id, target] : targets) {
    wanted += target.base - std::min(target.base, jobs_.at(id).base());
    shares.push_back(target);
  }
  const bool waited_for = to_come_ > free() || std::ranges::any_of(targets, [&](const auto& t) {
                            return !jobs_.at(t.first).admitted();
                          });
  const auto room = free() + (waited_for ? 0 : leased());
  if (wanted + (waited_for ? 0 : lease_pool(shares)) <= room) return;
  const bool recalls = waited_for && promised() > settings_.total;
  for (const auto& [id, target] : targets) {
    auto& job = jobs_.at(id);
    if (job.state != State::settled) continue;
    const bool over = target.base < job.ordered;
    if ((over && (waited_for || matters(job.ordered, target.base))) || (recalls && job.leased != 0))
      orders.push_back(order(id, job, {std::min(target.base, job.ordered), target.most}, now_ms));
  }
}

// As long as more is about to become free, nobody takes less than is meant for him.
void Ledger::grow(const Targets& targets, std::uint64_t now_ms, std::vector<Order>& orders) {
  const bool shrinking = std::ranges::any_of(jobs_, [](const auto& job) {
    return job.second.state == State::ordered &&
           job.second.ordered < job.second.held + job.second.leased;
  });
  const auto grows = [&](JobId id, const Share& target) {
    auto& job = jobs_.at(id);
    const auto has = job.base(), wanted = target.base - std::min(target.base, has);
    const auto kept = kept_beside(id);
    const auto each = std::min(wanted, free() - std::min(free(), kept));
    if (wanted == 0 || (each < wanted && shrinking)) return;
    auto bytes = has + each;
    if (each < wanted) bytes = std::max(has, bytes / settings_.grain * settings_.grain);
    if (job.admitted() ? !matters(has, bytes) : bytes < job.need.least) return;
    orders.push_back(order(id, job, {bytes, target.most}, now_ms));
  };
  for (const bool admitted : {false, true})
    for (const auto& [id, target] : targets)
      if (const auto& job = jobs_.at(id);
          job.admitted() == admitted && (!admitted || job.state == State::settled))
        grows(id, target);
}

// Of those whose bases stay: what they may plan for. That it became less is of no use to anybody,
// but a plan for more than is lent would be late each time.
void Ledger::tell_most(const Targets& targets, std::uint64_t now_ms, std::vector<Order>& orders) {
  for (const auto& [id, target] : targets) {
    auto& job = jobs_.at(id);
    const auto most = std::max(job.ordered, target.most);
    if (job.state == State::settled && matters(job.most, most))
      orders.push_back(order(id, job, {job.ordered, most}, now_ms));
  }
}

std::vector<Ledger::Order> Ledger::orders(std::uint64_t now_ms) {
  std::vector<Order> orders;
  mark_silent(now_ms);
  if (frozen()) return orders;
  const auto& targets = this->targets();
  shrink(targets, now_ms, orders);
  grow(targets, now_ms, orders);
  tell_most(targets, now_ms, orders);
  return orders;
}

// In parts, where there is not enough: a peak is worth each of them.
std::vector<Ledger::Lease> Ledger::lends() {
  std::vector<Lease> leases;
  if (frozen() || !targets_) return leases;
  std::vector<std::pair<std::uint64_t, JobId>> asking;
  for (const auto& [id, job] : jobs_)
    if (job.state == State::settled && job.asked.bytes > job.leased)
      asking.emplace_back(job.asked.turn, id);
  std::ranges::sort(asking);
  for (const auto& [turn, id] : asking) {
    auto& job = jobs_.at(id);
    const auto most = job.most - std::min(job.most, job.base());
    const auto wanted = std::min(job.asked.bytes, most);
    if (wanted <= job.leased) continue;
    const auto lendable = settings_.total - std::min(settings_.total, promised());
    auto more = std::min(wanted - job.leased, lendable);
    if (job.leased + more < wanted) more = more / settings_.grain * settings_.grain;
    if (more == 0 || (job.leased + more < wanted && more < settings_.ignored)) continue;
    job.leased += more;
    leases.push_back({.job = id, .number = job.asked.number, .bytes = job.leased});
  }
  return leases;
}

}  // namespace sentinel
