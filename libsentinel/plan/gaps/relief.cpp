// Ends writes early, delays fetches and at last evicts, at each op that still holds too much.
#include "plan/gaps/relief.h"

#include <algorithm>
#include <set>
#include <utility>

namespace sentinel::plan {
namespace {

class Relief {
 public:
  Relief(Pressure& pressure, std::vector<Period>& periods, std::uint32_t ops,
         const std::function<void(Period&)>& evict)
      : pressure_(pressure), periods_(periods), evict_(evict), ops_(ops), changes_(ops) {
    for (std::uint32_t i = 0; i < periods_.size(); ++i) {
      const Period& p = periods_[i];
      if (p.evicted) {
        note(writing_, i, p.use + 1, p.out);
        note(early_, i, p.in, p.next);
      } else {
        note(kept_, i, p.use + 1, p.next);
      }
    }
  }

  void run() {
    for (std::uint32_t k = 0; k < ops_; ++k) {
      for (const Change& c : changes_[k])
        if (!c.begins)
          c.list->erase(c.key);
        else if (holds(*c.list, periods_[c.key.second], k))
          c.list->insert(c.key);
      while (pressure_.over(k) && (stop_writing(k) || fetch_later(k) || evict())) {
      }
    }
  }

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // end of the period, its index
  using List = std::set<Key>;
  struct Change {
    List* list;
    Key key;
    bool begins;
  };

  // The position of op k within the period.
  std::uint32_t within(const Period& p, std::uint32_t k) const { return k > p.use ? k : k + ops_; }

  // Whether the period, which may have changed since it was noted, still is what the list says.
  bool holds(const List& list, const Period& p, std::uint32_t k) const {
    if (&list == &kept_) return !p.evicted;
    return &list == &writing_ ? within(p, k) < p.out : within(p, k) >= p.in;
  }

  // The period is in the list during [from, to); within a step its end counts from that step.
  void note(List& list, std::uint32_t i, std::uint32_t from, std::uint32_t to) {
    const auto stay = [&](std::uint32_t begin, std::uint32_t end, std::uint32_t next) {
      if (begin >= end) return;
      changes_[begin].push_back({&list, {next, i}, true});
      if (end < ops_) changes_[end].push_back({&list, {next, i}, false});
    };
    const std::uint32_t next = periods_[i].next;
    stay(from, std::min(to, ops_), next);
    if (to > ops_) stay(std::max(from, ops_) - ops_, to - ops_, next - ops_);
  }

  Period& pop_last(List& list) {
    const Key last = *list.rbegin();
    list.erase(last);
    return periods_[last.second];
  }

  bool stop_writing(std::uint32_t k) {
    if (writing_.empty()) return false;
    Period& p = pop_last(writing_);
    pressure_.release(within(p, k), p.out, p.bytes);
    p.out = within(p, k);
    return true;
  }

  // To where nothing is too full any more: once for each period, not op by op.
  bool fetch_later(std::uint32_t k) {
    if (early_.empty()) return false;
    Period& p = pop_last(early_);
    const std::uint32_t in = pressure_.room_since(within(p, k), p.next, 0);
    pressure_.release(p.in, in, p.bytes);
    p.in = in;
    return true;
  }

  bool evict() {
    if (kept_.empty()) return false;
    Period& p = pop_last(kept_);
    p.out = p.use + 1;
    p.in = p.next;
    p.evicted = p.forced = true;
    pressure_.release(p.out, p.in, p.bytes);
    evict_(p);
    return true;
  }

  Pressure& pressure_;
  std::vector<Period>& periods_;
  const std::function<void(Period&)>& evict_;
  std::uint32_t ops_;
  std::vector<std::vector<Change>> changes_;  // per op
  List writing_, early_, kept_;               // at the present op
};

}  // namespace

void relieve(Pressure& pressure, std::vector<Period>& periods, std::uint32_t ops,
             const std::function<void(Period&)>& evict) {
  if (!pressure.fits()) Relief(pressure, periods, ops, evict).run();
}

}  // namespace sentinel::plan
