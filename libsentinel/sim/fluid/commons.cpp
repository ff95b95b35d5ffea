// Hands out fast memory and tiers' space to jobs, and samples what is held.
#include "sim/fluid/commons.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/units.h"
#include "plan/step/rates.h"
#include "sentinel/error.h"

namespace sentinel::sim {

Timeline since(double us, Timeline timeline) {
  for (auto& s : timeline.samples) s.at_us = std::max(0.0, s.at_us - us);
  for (auto& t : timeline.transfers) {
    t.begin_us = std::max(0.0, t.begin_us - us);
    t.end_us -= us;
  }
  for (auto& w : timeline.waits) {
    w.begin_us -= us;
    w.end_us -= us;
  }
  for (auto& u : timeline.uses) {
    u.begin_us -= us;
    u.end_us -= us;
  }
  return timeline;
}

Commons::Commons(const Machine& machine, const SimOptions& options)
    : machine_(machine),
      capacity_(options.fast_bytes),
      timed_(options.timeline),
      fabric_(machine),
      stored_(machine.tiers.size(), 0) {}

Account& Commons::open_account() {
  accounts_.push_back(std::make_unique<Account>());
  accounts_.back()->moved.resize(machine_.tiers.size() * machine_.tiers.size(), 0);
  return *accounts_.back();
}

void Commons::sample(Account& account) const {
  if (!timed_) return;
  auto& samples = account.timeline.samples;
  if (!samples.empty() && samples.back().at_us == now_us())
    samples.back().fast_bytes = account.held;
  else
    samples.push_back({now_us(), account.held});
}

bool Commons::take(Account& account, std::uint64_t bytes) {
  if (!room(bytes)) return false;
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  account.held += bytes;
  account.peak = std::max(account.peak, account.held);
  sample(account);
  return true;
}

void Commons::give(Account& account, std::uint64_t bytes) {
  held_ -= bytes;
  account.held -= bytes;
  ++times_given_;
  sample(account);
}

void Commons::claim(Account& account, std::uint64_t bytes) {
  claimed_ += bytes - account.claim;
  account.claim = bytes;
}

bool Commons::room_in(std::uint32_t tier, std::uint64_t bytes) const {
  const std::uint64_t capacity = machine_.tiers[tier].capacity;
  return capacity == 0 || stored_[tier] + bytes <= capacity;
}

std::uint32_t Commons::tier_with_room(std::uint32_t tier, std::uint64_t bytes) const {
  const auto last = static_cast<std::uint32_t>(machine_.tiers.size() - 1);
  for (std::uint32_t t = std::clamp(tier, 1u, last); t < last; ++t)
    if (room_in(t, bytes)) return t;
  if (!room_in(last, bytes))
    throw Error(fmt::format("{} of machine {} is full: its {} do not hold what leaves fast memory",
                            machine_.tiers[last].name, machine_.name,
                            print_bytes(machine_.tiers[last].capacity)));
  return last;
}

TransferId Commons::start(Account& account, std::uint32_t from, std::uint32_t to,
                          std::uint64_t bytes, double delay_us, TensorId tensor,
                          std::function<void()> done) {
  const TransferId id = fabric_.start(from, to, bytes, delay_us);
  flying_[id] = {&account, std::move(done), {now_us(), 0, from, to, bytes, tensor}};
  ++account.flying;
  count(account, from, to, bytes);
  return id;
}

double Commons::compute_share() const {
  return std::max(plan::kLeastSpeed, 1 - plan::moving_us(machine_, fabric_.rate()));
}

void Commons::advance_to(double us) {
  std::vector<TransferId> completed;
  fabric_.advance(std::max(us, now_us()), completed);
  for (TransferId id : completed) {
    const auto extracted = flying_.extract(id);
    Flight& flight = extracted.mapped();
    --flight.account->flying;
    if (timed_) {
      flight.transfer.end_us = now_us();
      flight.account->timeline.transfers.push_back(flight.transfer);
    }
    if (flight.done) flight.done();
  }
}

void Commons::count(Account& account, std::uint32_t from, std::uint32_t to,
                    std::uint64_t bytes) const {
  auto& moved = account.moved[from * machine_.tiers.size() + to];
  moved = saturated_sum(moved, bytes);
}

std::vector<Traffic> Commons::traffic(const Account& account) const {
  const auto& moved = account.moved;
  std::vector<Traffic> list;
  const std::size_t tiers = machine_.tiers.size();
  for (std::size_t i = 0; i < moved.size(); ++i)
    if (moved[i] > 0)
      list.push_back({machine_.tiers[i / tiers].name, machine_.tiers[i % tiers].name, moved[i]});
  return list;
}

void Commons::begin_step(Account& account) const {
  std::ranges::fill(account.moved, 0);
  account.timeline = {};
  sample(account);
}

}  // namespace sentinel::sim
