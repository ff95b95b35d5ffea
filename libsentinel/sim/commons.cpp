#include "sim/commons.h"

#include <algorithm>
#include <utility>

namespace sentinel::sim {

Commons::Commons(const Machine& machine, const SimOptions& options)
    : machine_(machine),
      capacity_(options.fast_bytes),
      timed_(options.timeline),
      fabric_(machine),
      stored_(machine.tiers.size(), 0),
      moved_(machine.tiers.size() * machine.tiers.size(), 0) {}

void Commons::sample() {
  if (!timed_) return;
  auto& samples = timeline.samples;
  if (!samples.empty() && samples.back().at_us == now_us())
    samples.back().fast_bytes = held_;
  else
    samples.push_back({now_us(), held_});
}

bool Commons::take(std::uint64_t bytes) {
  if (!room(bytes)) return false;
  held_ += bytes;
  peak_ = std::max(peak_, held_);
  sample();
  return true;
}

void Commons::give(std::uint64_t bytes) {
  held_ -= bytes;
  sample();
}

std::uint32_t Commons::tier_with_room(std::uint32_t tier, std::uint64_t bytes) const {
  const auto last = static_cast<std::uint32_t>(machine_.tiers.size() - 1);
  for (std::uint32_t t = std::clamp(tier, 1u, last); t < last; ++t)
    if (machine_.tiers[t].capacity == 0 || stored_[t] + bytes <= machine_.tiers[t].capacity)
      return t;
  return last;
}

TransferId Commons::start(std::uint32_t from, std::uint32_t to, std::uint64_t bytes,
                          double delay_us, TensorId tensor, std::function<void()> done) {
  const TransferId id = fabric_.start(from, to, bytes, delay_us);
  flying_[id] = {std::move(done), {now_us(), 0, from, to, bytes, tensor}};
  count(from, to, bytes);
  return id;
}

void Commons::advance_to(double us) {
  std::vector<TransferId> completed;
  fabric_.advance(std::max(us, now_us()), completed);
  for (TransferId id : completed) {
    auto flight = flying_.extract(id);
    if (timed_) {
      flight.mapped().transfer.end_us = now_us();
      timeline.transfers.push_back(flight.mapped().transfer);
    }
    if (flight.mapped().done) flight.mapped().done();
  }
}

void Commons::count(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
  moved_[from * machine_.tiers.size() + to] += bytes;
}

std::vector<Traffic> Commons::traffic() const {
  std::vector<Traffic> list;
  const std::size_t tiers = machine_.tiers.size();
  for (std::size_t i = 0; i < moved_.size(); ++i)
    if (moved_[i] > 0)
      list.push_back({machine_.tiers[i / tiers].name, machine_.tiers[i % tiers].name, moved_[i]});
  return list;
}

Timeline Commons::timeline_since(double us) const {
  Timeline relative = timeline;
  for (auto& s : relative.samples) s.at_us = std::max(0.0, s.at_us - us);
  for (auto& t : relative.transfers) {
    t.begin_us = std::max(0.0, t.begin_us - us);
    t.end_us -= us;
  }
  for (auto& w : relative.waits) {
    w.begin_us -= us;
    w.end_us -= us;
  }
  return relative;
}

void Commons::restart_traffic() {
  std::ranges::fill(moved_, 0);
  timeline = {};
  sample();
}

}  // namespace sentinel::sim
