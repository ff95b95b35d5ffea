// Shares rates max-min fairly, and advances transfers to the next event.
#include "sim/fluid/fabric.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/step/rates.h"

namespace sentinel::sim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLastByte = 1e-3;  // rounding: less than this is nothing

double per_us(double bytes_per_s) { return bytes_per_s > 0 ? bytes_per_s / 1e6 : kInfinity; }

}  // namespace

// Resources: each tier's reading, each tier's writing, then each link in either direction, of which
// a half-duplex one uses the first alone.
Fabric::Fabric(const Machine& machine) : machine_(&machine) {
  for (const TierSpec& t : machine.tiers) capacity_.push_back(per_us(t.read_bw));
  for (const TierSpec& t : machine.tiers) capacity_.push_back(per_us(t.write_bw));
  for (const LinkSpec& l : machine.links) capacity_.insert(capacity_.end(), 2, per_us(l.bw));
}

std::vector<Fabric::Crossing> Fabric::path(std::uint32_t from, std::uint32_t to) const {
  const auto tiers = static_cast<std::uint32_t>(machine_->tiers.size());
  std::vector<Crossing> crosses{{from, 1}, {tiers + to, 1}};
  for (std::size_t i : plan::links_between(*machine_, from, to)) {
    const LinkSpec& link = machine_->links[i];
    // A port's direction is into or out of its tier; a joining link's is up or down the tiers.
    const bool second =
        link.tiers.size() == 1 ? machine_->tiers[to].name == link.tiers.front() : to < from;
    crosses.push_back(
        {2 * tiers + 2 * static_cast<std::uint32_t>(i) + (second && !link.half_duplex ? 1 : 0),
         plan::weight(*machine_, link, from, to)});
  }
  return crosses;
}

TransferId Fabric::start(std::uint32_t from, std::uint32_t to, std::uint64_t bytes,
                         double delay_us) {
  active_.push_back({.id = next_id_,
                     .from = from,
                     .to = to,
                     .remaining = static_cast<double>(bytes),
                     .flows_from = now_ + delay_us,
                     .crosses = path(from, to)});
  share();
  return next_id_++;
}

// Progressive filling: the resource that gives its transfers least is settled first.
void Fabric::share() {
  std::vector<Active*> open;
  for (Active& a : active_) {
    a.rate = 0;
    if (a.flows_from <= now_) open.push_back(&a);
  }
  std::vector<double> left = capacity_;
  while (!open.empty()) {
    std::vector<double> asked(left.size(), 0);  // for each byte of all
    for (const Active* a : open)
      for (const Crossing& c : a->crosses) asked[c.resource] += c.weight;
    std::uint32_t tightest = 0;
    double least = kInfinity;
    for (std::uint32_t r = 0; r < left.size(); ++r)
      if (asked[r] > 0 && left[r] / asked[r] < least) least = left[tightest = r] / asked[r];
    const auto crosses_tightest = [&](const Active* a) {
      return least == kInfinity ||
             std::ranges::find(a->crosses, tightest, &Crossing::resource) != a->crosses.end();
    };
    for (Active* a : open) {
      if (!crosses_tightest(a)) continue;
      a->rate = least;
      for (const Crossing& c : a->crosses)
        left[c.resource] = std::max(0.0, left[c.resource] - c.weight * least);
    }
    std::erase_if(open, crosses_tightest);
  }
}

double Fabric::rate() const {
  double sum = 0;
  for (const Active& a : active_)
    if (a.rate < kInfinity) sum += a.rate;
  return sum;
}

double Fabric::next_event_us() const {
  double next = kInfinity;
  for (const Active& a : active_) {
    if (a.flows_from > now_)
      next = std::min(next, a.flows_from);
    else if (a.remaining <= kLastByte || a.rate == kInfinity)
      next = now_;
    else if (a.rate > 0)
      next = std::min(next, now_ + a.remaining / a.rate);
  }
  return next;
}

void Fabric::advance(double to_us, std::vector<TransferId>& completed) {
  const double passed = to_us - now_;
  now_ = to_us;
  bool changed = false;
  for (Active& a : active_) {
    const bool flowed = a.rate > 0;
    if (flowed) a.remaining = a.rate == kInfinity ? 0 : a.remaining - a.rate * passed;
    if (!flowed && a.flows_from <= now_) changed = true;
  }
  const auto done = [&](const Active& a) {
    // A remainder that takes less time than the clock can tell is nothing either.
    return a.flows_from <= now_ && a.rate > 0 &&
           (a.remaining <= kLastByte || now_ + a.remaining / a.rate <= now_);
  };
  for (const Active& a : active_)
    if (done(a)) completed.push_back(a.id);
  changed |= std::erase_if(active_, done) > 0;
  if (changed) share();
}

}  // namespace sentinel::sim
