// Carries out transfers of tensors between tiers, and waits where there is no room.
#include "sim/job/residence.h"

#include <algorithm>
#include <span>
#include <utility>

namespace sentinel::sim {

Residence::Residence(const Profile& profile, std::span<const Placement> placements,
                     Commons& commons, Account& account)
    : commons_(commons),
      account_(account),
      storages_(plan::storages(profile)),
      footprint_(profile, placements, commons.machine().granule_bytes),
      holding_(footprint_),
      together_(footprint_),
      bodies_(storages_.size()),
      of_(profile.tensors.size(), kNone),
      lanes_(commons.machine().tiers.size()),
      unused_(storages_.size()) {
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    of_[storages_[i].tensor.index()] = StorageId(i);
    if (storages_[i].carried) of_[storages_[i].carried->index()] = StorageId(i);
  }
}

StorageId Residence::of(TensorId t) const {
  return t.index() < of_.size() ? of_[t.index()] : kNone;
}

// Of what was discarded, the granules at its ends are still held.
std::uint64_t Residence::missing(StorageId s) const {
  const TensorId tensor = storage(s).tensor;
  if (body(s).held) return 0;
  return holding_.missing(body(s).ends ? footprint_.whole(tensor) : footprint_.units(tensor));
}

std::vector<StorageId> Residence::beyond(std::span<const StorageId> some) {
  std::vector<StorageId> held, rest;
  const auto turn = [&](StorageId s) {
    return body(s).held ? 0 : body(s).place == Whereabouts::nowhere ? 1 : 2;
  };
  for (const int now : {0, 1, 2})
    for (StorageId s : some) {
      const TensorId tensor = storage(s).tensor;
      if (turn(s) != now) continue;
      const auto needed = together_.bytes() + together_.missing(tensor);
      const bool fits = needed <= commons_.capacity();
      (fits ? held : rest).push_back(s);
      if (fits) together_.hold(tensor);
    }
  for (StorageId s : held) together_.drop(storage(s).tensor);
  return rest;
}

bool Residence::hold(StorageId s) {
  if (body(s).held) return true;
  const TensorId tensor = storage(s).tensor;
  const auto bytes = missing(s);
  if (!commons_.take(account_, bytes)) return false;
  for (plan::UnitId u : body(s).ends ? footprint_.whole(tensor) : footprint_.units(tensor))
    holding_.hold(u);
  if (bytes != 0) ++changes_.holdings;
  body(s).ends = false;
  return body(s).held = true;
}

// All of its memory, or what a discard gives up.
void Residence::let_go(StorageId s, bool all) {
  Body& b = body(s);
  if (!b.held && !b.ends) return;
  const auto units = footprint_.units(storage(s).tensor);
  const auto whole = footprint_.whole(storage(s).tensor);
  const auto before = holding_.bytes();
  const auto drop = [&](std::span<const plan::UnitId> some) {
    for (plan::UnitId u : some) holding_.drop(u);
  };
  if (b.held) drop(whole);
  if (all) {
    const auto first = static_cast<std::size_t>(whole.data() - units.data());
    drop(units.first(first));
    drop(units.subspan(first + whole.size()));
  }
  const auto bytes = before - holding_.bytes();
  commons_.give(account_, bytes);
  if (bytes != 0) ++changes_.holdings;
  b.held = false;
  b.ends = !all;
}

void Residence::forget_transfer(StorageId s) {
  Body& b = body(s);
  if (b.transfer == 0) return;
  commons_.forget(b.transfer);
  for (Lanes& lanes : lanes_)
    for (Lane* lane : {&lanes.promotion, &lanes.demand, &lanes.demotion})
      if (lane->busy == b.transfer) lane->busy = 0;
  b.transfer = 0;
}

// Space in a slower tier for what is in fast memory.
void Residence::store(StorageId s, std::uint32_t tier) {
  Body& b = body(s);
  forget_copy(s);
  make_room(tier, storage(s).bytes);
  b.tier = commons_.tier_with_room(tier, storage(s).bytes);
  commons_.store(b.tier, storage(s).bytes);
  b.stored = true;
}

// What leaves is not sent further for the sake of copies of what stays.
void Residence::make_room(std::uint32_t tier, std::uint64_t bytes) {
  auto& copies = lanes_[tier].demotion.copies;
  while (!commons_.room_in(tier, bytes) && !copies.empty()) {
    const StorageId s = copies.front();
    copies.pop_front();
    const Body& b = body(s);
    if (b.place == Whereabouts::fast && b.copied && b.tier == tier) forget_copy(s);
  }
}

void Residence::forget_copy(StorageId s) {
  Body& b = body(s);
  if (b.place == Whereabouts::fast) forget_transfer(s);
  if (b.stored) commons_.unstore(b.tier, storage(s).bytes);
  b.stored = b.copied = false;
}

void Residence::set_place(StorageId s, Whereabouts place) {
  Body& b = body(s);
  if (b.pins > 0) changes_.stirred.push_back(s);
  if (b.place == Whereabouts::leaving) account_.leaving -= storage(s).bytes;
  if (place == Whereabouts::leaving) account_.leaving += storage(s).bytes;
  b.place = place;
  if (place == Whereabouts::fast)
    unused_.use(s.value);
  else
    unused_.remove(s.value);
}

void Residence::touch(StorageId s) {
  body(s).last_use = commons_.now_us();
  if (body(s).place == Whereabouts::fast) unused_.use(s.value);
}

bool Residence::create(StorageId s) {
  if (body(s).place == Whereabouts::fast) return true;
  if (!hold(s)) return false;
  forget_copy(s);
  body(s).wanted = body(s).demanded = false;
  touch(s);
  set_place(s, Whereabouts::fast);
  return true;
}

void Residence::create_in(StorageId s, std::uint32_t tier) {
  Body& b = body(s);
  forget_copy(s);
  b.tier = commons_.tier_with_room(tier, storage(s).bytes);
  commons_.store(b.tier, storage(s).bytes);
  b.stored = b.copied = true;
  set_place(s, Whereabouts::slow);
}

void Residence::destroy(StorageId s) {
  Body& b = body(s);
  forget_transfer(s);
  let_go(s);
  forget_copy(s);
  set_place(s, Whereabouts::nowhere);
  b = Body{.tier = b.tier, .pins = b.pins};
}

bool Residence::recall(StorageId s) {
  Body& b = body(s);
  if (b.place != Whereabouts::leaving || b.transfer != 0) return false;
  forget_copy(s);
  set_place(s, Whereabouts::fast);
  return true;
}

void Residence::promote(StorageId s) {
  Body& b = body(s);
  if (recall(s)) return;
  if ((b.place != Whereabouts::slow && b.place != Whereabouts::leaving) || b.wanted || b.demanded)
    return;
  b.wanted = true;
  lanes_[b.tier].promotion.queue.push_back(s);
}

void Residence::demote(StorageId s, std::uint32_t tier) {
  Body& b = body(s);
  if (b.place == Whereabouts::slow) b.wanted = false;  // a promotion still queued is taken back
  b.ahead = 0;
  if (b.place != Whereabouts::fast) return;
  if (b.copied) {
    set_place(s, Whereabouts::slow);
    let_go(s);
    return;
  }
  if (b.transfer != 0) return set_place(s, Whereabouts::leaving);  // when its copy is there
  store(s, tier);
  set_place(s, Whereabouts::leaving);
  lanes_[b.tier].demotion.queue.push_back(s);
}

void Residence::copy(StorageId s, std::uint32_t tier) {
  body(s).ahead = tier;
  lanes_[tier].demotion.ahead.push_back(s);
}

void Residence::discard(StorageId s) {
  Body& b = body(s);
  if (b.place == Whereabouts::nowhere || b.place == Whereabouts::lost) return;
  let_go(s, false);
  const bool ends = std::exchange(b.ends, false);
  destroy(s);
  b.ends = ends;
  set_place(s, Whereabouts::lost);
}

void Residence::fetch(StorageId s, double delay_us) {
  Body& b = body(s);
  if (b.place != Whereabouts::slow || b.demanded) return;
  b.wanted = false;
  b.demanded = true;
  b.fault_us = delay_us;
  lanes_[b.tier].demand.queue.push_back(s);
}

void Residence::expedite(StorageId s) {
  auto& queue = lanes_[body(s).tier].promotion.queue;
  const auto at = std::ranges::find(queue, s);
  if (at == queue.end() || at == queue.begin()) return;
  queue.erase(at);
  queue.push_front(s);
}

void Residence::stream(StorageId s) {
  Body& b = body(s);
  if (!b.stored) create_in(s, b.tier);
  set_place(s, Whereabouts::slow);
  b.copied = true;
  b.wanted = b.demanded = false;
}

void Residence::used(StorageId s, bool written) {
  if (written && body(s).place == Whereabouts::fast) {
    forget_copy(s);
    body(s).ahead = 0;
  }
  touch(s);
}

void Residence::pin(StorageId s, bool on) { body(s).pins += on ? 1 : -1; }

StorageId Residence::longest_unused() const {
  for (std::uint32_t i = unused_.oldest(); i != unused_.end(); i = unused_.newer(i))
    if (bodies_[i].pins == 0) return StorageId(i);
  return kNone;
}

void Residence::start_in(StorageId s, Lane& lane) {
  Body& b = body(s);
  set_place(s, Whereabouts::arriving);
  const double delay = commons_.machine().tiers[b.tier].latency_us + b.fault_us;
  b.wanted = b.demanded = false;
  b.fault_us = 0;
  lane.busy = b.transfer =
      commons_.start(account_, b.tier, 0, storage(s).bytes, delay, storage(s).tensor,
                     [this, s, &lane] { arrived(s, lane); });
}

void Residence::start_out(StorageId s, Lane& lane) {
  Body& b = body(s);
  lane.busy = b.transfer = commons_.start(account_, 0, b.tier, storage(s).bytes,
                                          commons_.machine().tiers[b.tier].latency_us,
                                          storage(s).tensor, [this, s, &lane] { left(s, lane); });
}

void Residence::arrived(StorageId s, Lane& lane) {
  Body& b = body(s);
  lane.busy = b.transfer = 0;
  b.copied = true;
  if (commons_.machine().exclusive) forget_copy(s);
  touch(s);
  set_place(s, Whereabouts::fast);
}

void Residence::left(StorageId s, Lane& lane) {
  Body& b = body(s);
  lane.busy = b.transfer = 0;
  b.copied = true;
  if (b.place == Whereabouts::fast) return lane.copies.push_back(s);
  set_place(s, Whereabouts::slow);
  let_go(s);
}

void Residence::settle_out(std::uint32_t tier) {
  Lane& lane = lanes_[tier].demotion;
  while (lane.busy == 0 && !lane.queue.empty()) {
    const StorageId s = lane.queue.front();
    lane.queue.pop_front();
    if (body(s).place == Whereabouts::leaving && body(s).transfer == 0) start_out(s, lane);
  }
  // None while an op waits for room, which copies do not make.
  while (lane.busy == 0 && !lane.ahead.empty() && account_.claim == 0) {
    const StorageId s = lane.ahead.front();
    lane.ahead.pop_front();
    Body& b = body(s);
    if (b.ahead != tier) continue;
    b.ahead = 0;
    if (b.place != Whereabouts::fast || b.copied || b.transfer != 0) continue;
    if (!commons_.room_in(tier, storage(s).bytes)) continue;
    store(s, tier);
    start_out(s, lane);
  }
}

// What is at the head and finds no room waits, and what is behind it waits too: the order is the
// controller's.
void Residence::settle_in(Lane& lane, bool demand) {
  while (lane.busy == 0 && !lane.queue.empty()) {
    const StorageId s = lane.queue.front();
    const Body& b = body(s);
    const bool asked = demand ? b.demanded : b.wanted;
    if (asked && b.place == Whereabouts::leaving) return;
    if (asked && b.place == Whereabouts::slow) {
      const bool operand = b.pins > 0;
      if (!operand && !commons_.room_unclaimed(missing(s))) return;
      if (!hold(s)) return;
    }
    lane.queue.pop_front();
    if (asked && b.place == Whereabouts::slow) start_in(s, lane);
  }
}

void Residence::settle() {
  for (std::uint32_t t = 1; t < lanes_.size(); ++t) {
    settle_out(t);
    settle_in(lanes_[t].demand, true);
    settle_in(lanes_[t].promotion, false);
  }
}

}  // namespace sentinel::sim
