// Runs the model block by block, and stops a trial where its state is the old one again.
#include "plan/search/cost_run.h"

#include <algorithm>

namespace sentinel::plan {

CostRun::CostRun(const CostModel& model)
    : model_(model),
      choices_(model.size(), Remedy::keep),
      blocks_((model.ops() + kBlock - 1) / kBlock) {
  for (History* h : {&committed_, &trial_}) {
    for (std::size_t t = 0; t < model.tiers(); ++t) {
      h->writes[t].resize(model.size() + 1);
      h->fetches[t].resize(model.size() + 1);
    }
    h->written.resize(model.size());
    h->arrived.resize(model.size());
    h->tier.resize(model.size(), 1);
  }
  evaluate(choices_);
}

Cost CostRun::evaluate(std::span<const Remedy> choices) {
  if (choices.data() != choices_.data()) choices_.assign(choices.begin(), choices.end());
  held_ = model_.held();
  moved_ = 0;
  for (std::uint32_t i = 0; i < choices_.size(); ++i) hold(i, choices_[i], -1);
  State s;
  for (std::uint32_t b = 0; b < blocks(); ++b) run_block(b, s, blocks_[b]);
  replay_ticks_ = s.replay;
  return cost_ = {s.excess, s.now, moved_};
}

void CostRun::apply(std::uint32_t item, Remedy remedy) {
  hold(item, choices_[item], 1);
  choices_[item] = remedy;
  hold(item, remedy, -1);
  const bool wraps = model_.item(item).next >= model_.ops();
  std::uint32_t b = wraps ? 0 : model_.item(item).use / kBlock;
  State s = blocks_[b].start;
  for (; b < blocks(); ++b) run_block(b, s, blocks_[b]);
  replay_ticks_ = s.replay;
  cost_ = {s.excess, s.now, moved_};
}

// Adds (1) or removes (-1) the item where the remedy has it absent.
void CostRun::hold(std::uint32_t i, Remedy remedy, std::int64_t sign) {
  if (remedy == Remedy::keep) return;
  const CostModel::Item& item = model_.item(i);
  if (remedy == Remedy::swap) moved_ -= static_cast<std::uint64_t>(sign) * item.bytes;
  const std::uint32_t end = remedy == Remedy::swap ? item.in : item.next, ops = model_.ops();
  const std::int64_t bytes = sign * static_cast<std::int64_t>(item.held);
  const auto add = [&](std::uint32_t from, std::uint32_t to) {
    for (std::uint32_t k = from; k < to; ++k) held_[k] += bytes;
  };
  add(std::min(item.use + 1, ops), std::min(end, ops));
  if (end > ops) add(item.use + 1 > ops ? item.use + 1 - ops : 0, end - ops);
}

void CostRun::run_block(std::uint32_t b, State& s, OpBlock& block) {
  block = OpBlock{.start = s};
  block.store_room.fill(INT64_MAX);
  const std::uint32_t end = std::min((b + 1) * kBlock, model_.ops());
  for (std::uint32_t k = b * kBlock; k < end; ++k) step(k, s, block);
  retire(s);  // so that states compare by what is still under way
  ops_evaluated_ += end - b * kBlock;
}

void CostRun::step(std::uint32_t op, State& s, OpBlock& block) {
  retire(s);
  const std::int64_t later = start_fetches(op, s);
  const std::int64_t pending = s.pending;
  const Replayed replayed = meet_needs(op, s);
  const std::int64_t held = held_[op] + replayed.held;
  block.room = std::min(block.room, limit() - held - pending);
  block.replays |= replayed.ticks > 0;
  if (held - later + s.pending > limit()) wait_for_room(held - later, s);
  if (held > limit()) s.excess += static_cast<std::uint64_t>(held - limit());
  s.now += replayed.ticks + model_.ticks(op);
  s.replay += replayed.ticks;
  start_writes(op, s, block);
}

void CostRun::retire(State& s) {
  for (std::size_t t = 1; t < model_.tiers(); ++t) {
    for (; s.write_head[t] < s.write_tail[t]; ++s.write_head[t]) {
      const std::uint32_t i = write_at(t, s.write_head[t]);
      if (written(i) > s.now) break;
      s.pending -= static_cast<std::int64_t>(model_.item(i).held);
    }
    while (s.fetch_head[t] < s.fetch_tail[t] && arrived(fetch_at(t, s.fetch_head[t])) <= s.now)
      ++s.fetch_head[t];
  }
}

// Returns the bytes fetched from here on that this op does not need yet: it does not wait for room
// for them; their transfer does.
std::int64_t CostRun::start_fetches(std::uint32_t op, State& s) {
  std::int64_t later = 0, room = -1;
  for (std::uint32_t i : model_.fetched_at(op)) {
    if (choices_[i] != Remedy::swap) continue;
    const CostModel::Item& item = model_.item(i);
    if (room < 0 && held_[op] + s.pending <= limit()) room = s.now;
    if (room < 0) {
      State then = s;
      wait_for_room(held_[op], then);
      room = then.now;
    }
    const std::uint32_t t = tier(i);
    const std::int64_t own = item.next < model_.ops() ? written(i) : 0;
    s.in_free[t] = std::max({s.in_free[t], room, own}) + item.in_ticks[t];
    History& history = trying_ ? trial_ : committed_;
    history.arrived[i] = s.in_free[t];
    history.fetches[t][s.fetch_tail[t]++] = i;
    if (item.next % model_.ops() != op) later += static_cast<std::int64_t>(item.held);
  }
  return later;
}

CostRun::Replayed CostRun::meet_needs(std::uint32_t op, State& s) {
  Replayed replayed;
  bool replays = false;
  for (std::uint32_t i : model_.needed_at(op)) {
    replays |= choices_[i] == Remedy::recompute;
    if (choices_[i] != Remedy::swap) continue;
    const CostModel::Item& item = model_.item(i);
    const bool wraps = item.next >= model_.ops();
    if (!wraps || item.in >= model_.ops()) s.now = std::max(s.now, arrived(i));
    if (!wraps && item.dirty) s.stored[tier(i)] -= static_cast<std::int64_t>(item.bytes);
  }
  if (!replays) return replayed;
  remade_.clear();
  for (std::uint32_t i : model_.needed_at(op)) {
    if (choices_[i] != Remedy::recompute) continue;
    const CostModel::Item& item = model_.item(i);
    if (item.chain == CostModel::kNone || !replay(item.chain, op, s, replayed))
      s.excess += item.held + 1;
  }
  replayed.ticks = std::max<std::int64_t>(replayed.ticks, 1);  // a block that replays says so
  return replayed;
}

bool CostRun::replay(std::uint32_t n, std::uint32_t op, State& s, Replayed& replayed) {
  const CostModel::Node& node = model_.node(n);
  if (std::ranges::find(remade_, node.op) != remade_.end()) return true;
  for (const CostModel::Edge& e : model_.edges(node)) {
    if (e.item != CostModel::kNone && present(e.item, op)) {
      if (choices_[e.item] == Remedy::swap) s.now = std::max(s.now, arrived(e.item));
      continue;
    }
    const bool fetched_later = e.item != CostModel::kNone && choices_[e.item] == Remedy::swap;
    if (fetched_later || e.node == CostModel::kNone || !replay(e.node, op, s, replayed))
      return false;
  }
  remade_.push_back(node.op);
  replayed.ticks += node.ticks;
  replayed.held += static_cast<std::int64_t>(node.held);
  return true;
}

// Of an item whose gap spans the op.
bool CostRun::present(std::uint32_t i, std::uint32_t op) const {
  return choices_[i] == Remedy::keep || (choices_[i] == Remedy::swap && op >= model_.item(i).in);
}

// Moves the clock to when `needed` bytes fit beside the writes that are then unfinished.
void CostRun::wait_for_room(std::int64_t needed, State& s) const {
  while (needed + s.pending > limit()) {
    std::size_t first = 0;
    std::int64_t when = INT64_MAX;
    for (std::size_t t = 1; t < model_.tiers(); ++t)
      if (s.write_head[t] < s.write_tail[t]) {
        const std::int64_t at = written(write_at(t, s.write_head[t]));
        if (at < when) when = at, first = t;
      }
    if (first == 0) return;
    s.now = std::max(s.now, when);
    s.pending -=
        static_cast<std::int64_t>(model_.item(write_at(first, s.write_head[first]++)).held);
  }
}

void CostRun::start_writes(std::uint32_t op, State& s, OpBlock& block) {
  for (std::uint32_t i : model_.used_at(op)) {
    if (choices_[i] != Remedy::swap) continue;
    const CostModel::Item& item = model_.item(i);
    History& history = trying_ ? trial_ : committed_;
    const bool wraps = item.next >= model_.ops();
    const auto bytes = static_cast<std::int64_t>(item.bytes);
    std::size_t t = 1;
    if (!wraps && item.dirty) {
      for (; t + 1 < model_.tiers(); ++t) {
        const std::int64_t room =
            static_cast<std::int64_t>(model_.capacity(t)) - s.stored[t] - bytes;
        block.store_room[t] = std::min(block.store_room[t], room);
        if (room >= 0) break;
      }
      s.stored[t] += bytes;
    }
    history.tier[i] = static_cast<std::uint8_t>(t);
    if (trying_ && i != tried_ && committed_.tier[i] != t) tiers_differ_ = true;
    history.written[i] = s.now;
    if (!item.dirty) continue;
    s.out_free[t] = std::max(s.out_free[t], s.now) + item.out_ticks[t];
    history.written[i] = s.out_free[t];
    history.writes[t][s.write_tail[t]++] = i;
    s.pending += static_cast<std::int64_t>(item.held);
  }
}

std::int64_t CostRun::written(std::uint32_t i) const {
  if (!trying_) return committed_.written[i];
  return mine(i, model_.item(i).use) ? trial_.written[i] : committed_.written[i] + shift_;
}

std::int64_t CostRun::arrived(std::uint32_t i) const {
  if (!trying_) return committed_.arrived[i];
  return mine(i, model_.item(i).in % model_.ops()) ? trial_.arrived[i]
                                                   : committed_.arrived[i] + shift_;
}

std::uint32_t CostRun::tier(std::uint32_t i) const {
  if (model_.item(i).next >= model_.ops()) return 1;
  return trying_ && mine(i, model_.item(i).use) ? trial_.tier[i] : committed_.tier[i];
}

std::uint32_t CostRun::write_at(std::size_t t, std::uint32_t at) const {
  return (trying_ && at >= writes_from_[t] ? trial_ : committed_).writes[t][at];
}

std::uint32_t CostRun::fetch_at(std::size_t t, std::uint32_t at) const {
  return (trying_ && at >= fetches_from_[t] ? trial_ : committed_).fetches[t][at];
}

Cost CostRun::trial(std::uint32_t item, Remedy remedy) {
  const Remedy was = choices_[item];
  if (was == remedy) return cost_;
  hold(item, was, 1);
  hold(item, choices_[item] = remedy, -1);
  trying_ = true;
  tried_ = item;
  tiers_differ_ = false;
  moves_ = was == Remedy::swap || remedy == Remedy::swap;
  const auto held = static_cast<std::int64_t>(model_.item(item).held);
  held_change_ = (was == Remedy::keep ? 0 : held) - (remedy == Remedy::keep ? 0 : held);
  Cost cost = run_trial(item);
  cost.moved = moved_;
  trying_ = false;
  hold(item, remedy, 1);
  hold(item, choices_[item] = was, -1);
  return cost;
}

Cost CostRun::run_trial(std::uint32_t i) {
  const CostModel::Item& item = model_.item(i);
  const bool wraps = item.next >= model_.ops();
  std::uint32_t b = wraps ? 0 : item.use / kBlock;
  State s = enter(b, {});
  OpBlock scratch;
  while (true) {
    run_block(b++, s, scratch);
    if (b == blocks()) return {s.excess, s.now};
    const std::uint32_t at = b * kBlock;
    if (wraps || tiers_differ_ || (moves_ && at > item.in && at <= item.next)) continue;
    const State& old = blocks_[b].start;
    if (!same(s, old)) continue;
    Offset offset{.ticks = s.now - old.now, .excess = s.excess - old.excess};
    for (std::size_t t = 1; t < model_.tiers(); ++t) offset.stored[t] = s.stored[t] - old.stored[t];
    const std::uint32_t entered = b;
    while (b < blocks() && untouched(b, offset)) ++b;
    if (b == blocks()) return {cost_.excess + offset.excess, cost_.ticks + offset.ticks};
    if (b > entered) s = enter(b, offset);
  }
}

CostRun::State CostRun::enter(std::uint32_t b, const Offset& offset) {
  State s = blocks_[b].start;
  s.now += offset.ticks;
  s.excess += offset.excess;
  for (std::size_t t = 1; t < model_.tiers(); ++t) {
    s.in_free[t] += offset.ticks;
    s.out_free[t] += offset.ticks;
    s.stored[t] += offset.stored[t];
  }
  from_ = b * kBlock;
  shift_ = offset.ticks;
  writes_from_ = s.write_tail;
  fetches_from_ = s.fetch_tail;
  return s;
}

// Whether what follows is the same, but for a shift in time and what is stored.
bool CostRun::same(const State& tried, const State& old) const {
  if (tried.pending != old.pending) return false;
  for (std::size_t t = 1; t < model_.tiers(); ++t) {
    const auto left = [](std::int64_t free, const State& s) {
      return std::max(free, s.now) - s.now;
    };
    if (left(tried.in_free[t], tried) != left(old.in_free[t], old) ||
        left(tried.out_free[t], tried) != left(old.out_free[t], old))
      return false;
    const std::uint32_t writes = tried.write_tail[t] - tried.write_head[t];
    const std::uint32_t fetches = tried.fetch_tail[t] - tried.fetch_head[t];
    if (writes != old.write_tail[t] - old.write_head[t] ||
        fetches != old.fetch_tail[t] - old.fetch_head[t])
      return false;
    for (std::uint32_t n = 0; n < writes; ++n) {
      const std::uint32_t i = write_at(t, tried.write_head[t] + n);
      if (i != committed_.writes[t][old.write_head[t] + n] ||
          written(i) - tried.now != committed_.written[i] - old.now)
        return false;
    }
    for (std::uint32_t n = 0; n < fetches; ++n) {
      const std::uint32_t i = fetch_at(t, tried.fetch_head[t] + n);
      if (i != committed_.fetches[t][old.fetch_head[t] + n] ||
          arrived(i) - tried.now != committed_.arrived[i] - old.now)
        return false;
    }
  }
  return true;
}

// Whether the block, entered in the old state but for the offset, goes as before.
bool CostRun::untouched(std::uint32_t b, const Offset& offset) const {
  const OpBlock& block = blocks_[b];
  const CostModel::Item& item = model_.item(tried_);
  const std::uint32_t first = b * kBlock, last = first + kBlock - 1;
  const bool past = first > item.next;
  for (std::size_t t = 1; t < model_.tiers(); ++t)
    if (offset.stored[t] != 0 && block.store_room[t] < std::max<std::int64_t>(offset.stored[t], 0))
      return false;
  if (past) return true;
  if (item.next <= last || (moves_ && item.in <= last)) return false;
  return !block.replays && block.room >= std::max<std::int64_t>(held_change_, 0);
}

}  // namespace sentinel::plan
