// Transfers what passes in two chains, one each way.
#include "sim/job/passing.h"

namespace sentinel::sim {

Passing::Passing(Commons& commons, Account& account, Residence& residence)
    : commons_(commons),
      account_(account),
      residence_(residence),
      is_added_(residence.storages().size(), false) {}

void Passing::begin() {
  for (const Operand& o : added_) is_added_[o.storage.index()] = false;
  added_.clear();
  started_ = 0;
}

void Passing::add(const Operand& o) {
  added_.push_back(o);
  is_added_[o.storage.index()] = true;
}

void Passing::start() {
  for (; started_ < added_.size(); ++started_) {
    const Operand& o = added_[started_];
    if (commons_.machine().tiers[residence_.tier(o.storage)].byte_addressable) continue;
    if (o.read) in_.queue.push_back(o.storage);
    if (o.written) out_.queue.push_back(o.storage);
  }
  next(in_, false);
  next(out_, true);
}

void Passing::next(Way& way, bool out) {
  if (way.busy || way.queue.empty()) return;
  const StorageId s = way.queue.front();
  way.queue.pop_front();
  way.busy = true;
  const std::uint32_t tier = residence_.tier(s);
  const plan::Storage& storage = residence_.storage(s);
  commons_.start(account_, out ? 0 : tier, out ? tier : 0, storage.bytes,
                 commons_.machine().tiers[tier].latency_us, storage.tensor, [this, &way, out] {
                   way.busy = false;
                   next(way, out);
                 });
}

bool Passing::over() const { return started_ == added_.size() && !in_.busy && !out_.busy; }

// What has come for good meanwhile stays.
void Passing::end() {
  for (const Operand& o : added_) {
    const Whereabouts place = residence_.place(o.storage);
    if (place == Whereabouts::slow || place == Whereabouts::nowhere) residence_.stream(o.storage);
  }
}

}  // namespace sentinel::sim
