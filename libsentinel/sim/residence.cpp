#include "sim/residence.h"

#include <algorithm>

#include "plan/rates.h"

namespace sentinel::sim {

Residence::Residence(const Profile& profile, const Machine& machine, const SimOptions& options)
    : machine_(machine),
      capacity_(options.fast_bytes),
      storages_(plan::storages(profile)),
      footprint_(profile, options.placements, machine.granule_bytes),
      holding_(footprint_),
      bodies_(storages_.size()),
      of_(profile.tensors.size(), kNone),
      fabric_(machine),
      in_queue_(machine.tiers.size()),
      out_queue_(machine.tiers.size()),
      in_busy_(machine.tiers.size(), 0),
      out_busy_(machine.tiers.size(), 0),
      moved_(machine.tiers.size() * machine.tiers.size(), 0) {
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    of_[storages_[i].tensor.index()] = StorageId(i);
    if (storages_[i].carried) of_[storages_[i].carried->index()] = StorageId(i);
  }
}

StorageId Residence::of(TensorId t) const {
  return t.index() < of_.size() ? of_[t.index()] : kNone;
}

bool Residence::has_room(StorageId s) const {
  return holding_.bytes() + holding_.missing(storage(s).tensor) <= capacity_;
}

bool Residence::hold(StorageId s) {
  if (body(s).held) return true;
  if (!has_room(s)) return false;
  holding_.hold(storage(s).tensor);
  peak_ = std::max(peak_, holding_.bytes());
  return body(s).held = true;
}

void Residence::let_go(StorageId s) {
  if (body(s).held) holding_.drop(storage(s).tensor);
  body(s).held = false;
}

bool Residence::create(StorageId s) {
  if (body(s).place == Place::fast) return true;
  if (!hold(s)) return false;
  body(s).place = Place::fast;
  body(s).copied = body(s).wanted = false;
  return true;
}

void Residence::destroy(StorageId s) {
  if (body(s).transfer != 0) flying_.erase(body(s).transfer);
  let_go(s);
  body(s) = Body{.tier = body(s).tier};
}

void Residence::begin_absent(StorageId s) {
  body(s).place = Place::slow;
  body(s).copied = true;
}

void Residence::promote(StorageId s) {
  Body& b = body(s);
  if (b.place == Place::nowhere || b.place == Place::fast || b.place == Place::arriving || b.wanted)
    return;
  b.wanted = true;
  in_queue_[b.tier].push_back(s);
}

void Residence::demote(StorageId s, std::uint32_t tier) {
  Body& b = body(s);
  if (b.place == Place::slow) b.wanted = false;  // a promotion still queued is taken back
  if (b.place != Place::fast) return;
  if (b.copied) {
    b.place = Place::slow;
    let_go(s);
    return;
  }
  b.place = Place::leaving;
  b.tier = std::min<std::uint32_t>(tier, static_cast<std::uint32_t>(machine_.tiers.size() - 1));
  out_queue_[b.tier].push_back(s);
}

bool Residence::fetch(StorageId s, double delay_us) {
  if (!hold(s)) return false;
  body(s).wanted = false;
  start_in(s, delay_us);
  return true;
}

void Residence::expedite(StorageId s) {
  auto& queue = in_queue_[body(s).tier];
  const auto at = std::ranges::find(queue, s);
  if (at == queue.end() || at == queue.begin()) return;
  queue.erase(at);
  queue.push_front(s);
}

void Residence::stream(StorageId s, bool in, bool out) {
  Body& b = body(s);
  const std::uint64_t bytes = storage(s).bytes;
  if (in) count(b.tier, 0, bytes);
  if (out) count(0, b.tier, bytes);
  b.place = Place::slow;
  b.copied = true;
  b.wanted = false;
}

void Residence::used(StorageId s, bool written, double now_us) {
  if (written && body(s).place == Place::fast) body(s).copied = false;
  body(s).last_use = now_us;
}

void Residence::start_in(StorageId s, double delay_us) {
  Body& b = body(s);
  b.place = Place::arriving;
  b.transfer =
      fabric_.start(b.tier, 0, storage(s).bytes, machine_.tiers[b.tier].latency_us + delay_us);
  flying_[b.transfer] = s;
  count(b.tier, 0, storage(s).bytes);
}

void Residence::start_out(StorageId s) {
  Body& b = body(s);
  b.transfer = fabric_.start(0, b.tier, storage(s).bytes, machine_.tiers[b.tier].latency_us);
  flying_[b.transfer] = s;
  count(0, b.tier, storage(s).bytes);
}

// One promotion and one demotion at a time for each slower tier. A promotion at the head that finds
// no room waits, and what is behind it waits too: the order is the controller's.
void Residence::settle() {
  for (std::size_t t = 1; t < machine_.tiers.size(); ++t) {
    auto& out = out_queue_[t];
    while (out_busy_[t] == 0 && !out.empty()) {
      const StorageId s = out.front();
      out.pop_front();
      if (body(s).place != Place::leaving || body(s).transfer != 0) continue;
      start_out(s);
      out_busy_[t] = body(s).transfer;
    }
    auto& in = in_queue_[t];
    while (in_busy_[t] == 0 && !in.empty()) {
      const StorageId s = in.front();
      const Body& b = body(s);
      const bool stale = !b.wanted || b.place == Place::fast || b.place == Place::arriving;
      if (!stale && (b.place == Place::leaving || !hold(s))) break;
      in.pop_front();
      if (stale) continue;
      body(s).wanted = false;
      start_in(s, 0);
      in_busy_[t] = b.transfer;
    }
  }
}

void Residence::complete(TransferId id) {
  for (auto* busy : {&in_busy_, &out_busy_}) std::ranges::replace(*busy, id, TransferId{0});
  const auto found = flying_.find(id);
  if (found == flying_.end()) return;  // the tensor died meanwhile
  const StorageId s = found->second;
  flying_.erase(found);
  Body& b = body(s);
  b.transfer = 0;
  b.copied = true;
  if (b.place == Place::arriving) {
    b.place = Place::fast;
  } else {
    b.place = Place::slow;
    let_go(s);
  }
}

void Residence::advance_to_event() { advance_to(fabric_.next_event_us()); }

void Residence::advance_to(double us) {
  settle();
  while (true) {
    const double next = std::min(us, fabric_.next_event_us());
    std::vector<TransferId> completed;
    fabric_.advance(std::max(next, fabric_.now_us()), completed);
    for (TransferId id : completed) complete(id);
    settle();
    if (next >= us) return;
  }
}

void Residence::count(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
  moved_[from * machine_.tiers.size() + to] += bytes;
}

std::vector<Traffic> Residence::traffic() const {
  std::vector<Traffic> list;
  const std::size_t tiers = machine_.tiers.size();
  for (std::size_t i = 0; i < moved_.size(); ++i)
    if (moved_[i] > 0)
      list.push_back({machine_.tiers[i / tiers].name, machine_.tiers[i % tiers].name, moved_[i]});
  return list;
}

void Residence::reset_traffic() { std::ranges::fill(moved_, 0); }

}  // namespace sentinel::sim
