// The ledger at random: never over, never stuck.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/units.h"
#include "broker/ledger.h"

namespace sentinel {
namespace {

using State = Ledger::State;

// A world of jobs that behave at random: they answer late or never, cannot shrink, ask for leases
// and give them back, die, lose their connection, come back, change their needs. Messages lie on
// the way in both directions. What they really hold is known here.
class World {
 public:
  explicit World(unsigned seed) : random_(seed), total_(below(30) * 32_MiB + 128_MiB) { restart(); }

  void run(int events) {
    for (int i = 0; i < events && !testing::Test::HasFailure(); ++i) {
      now_ += below(4) == 0 ? below(15'000) : below(50);
      happens();
      work();
      never_over();
    }
    never_stuck();
  }
  std::uint64_t lent() const { return lent_; }

 private:
  struct Said {  // by a job: an order's answer, or what it wants beyond its base
    bool answer = false;
    std::uint64_t number = 0, holds = 0, wants = 0;
  };
  struct Told {  // to a job
    bool order = false;
    std::uint64_t number = 0, bytes = 0;
  };
  struct Actor {
    Need need;
    JobId id = 0;
    std::uint64_t holds = 0, leased = 0, asked = 0;  // asked: the number of what it last asked
    bool stopped = false, away = false, stubborn = false;
    std::deque<Told> inbox;
    std::deque<Said> outbox;
  };

  std::uint64_t below(std::uint64_t most) { return random_() % most; }
  Need some_need(bool of_ranks = true) {
    const auto least = 16_MiB + below(6) * 16_MiB;
    Need need{
        .least = least, .most = least + below(20) * 32_MiB, .priority = 1.0 + double(below(3))};
    if (below(3) != 0) need.usual = least + (need.most - least) * below(4) / 4;
    if (of_ranks && below(3) == 0) joins_training(need);
    if (below(2) == 0)
      need.curve = {{least, 1.0 + double(below(40)) / 10},
                    {least + (need.most - least) / 2, 1.3},
                    {need.most, 1}};
    return need;
  }

  void joins_training(Need& need) {
    if (to_come_ == 0) to_come_ = 2 + ++training_ % 2;
    need.training = training_, need.ranks = 2 + training_ % 2;
    need.least = 16_MiB + training_ % 6 * 16_MiB, need.usual = 0;
    need.most = std::max(need.most, need.least);
    --to_come_;
  }
  static Need with_training_of(const Need& before, Need need) {
    need.training = before.training, need.ranks = before.ranks;
    if (need.training != 0)
      need.least = before.least, need.most = std::max(need.most, need.least), need.usual = 0;
    return need;
  }

  void restart() {  // the ledger's file has what was counted
    Ledger next({.total = total_});
    for (auto& actor : actors_) {
      const auto& job = ledger_->jobs().at(actor.id);
      actor.inbox.clear();
      actor.outbox.clear();
      if (!job.admitted()) {
        actor.id = next.joins(actor.need);
        continue;
      }
      auto stored = actor.need;
      stored.training = 0, stored.ranks = 1;
      actor.id = next.remember(stored, job.counted());
      actor.away = true;
    }
    ledger_ = std::move(next);
  }

  void happens() {
    const auto what = below(16);
    if (what < 3 && actors_.size() < 8) {
      Actor actor{.need = some_need()};
      if (!ledger_->could_fit(actor.need)) return;
      actor.id = ledger_->joins(actor.need);
      actors_.push_back(actor);
      return;
    }
    if (what == 11 && below(10) == 0) return restart();
    if (actors_.empty()) return;
    auto& actor = actors_[below(actors_.size())];
    switch (what) {
      case 3:
        lost_.insert(actor.need.training);
        ledger_->ends(actor.id);
        std::swap(actor, actors_.back());
        actors_.pop_back();
        break;
      case 4:
        actor.stopped = true;
        break;
      case 5:
        actor.stopped = false;
        break;
      case 6:
        actor.stubborn = below(4) == 0;
        break;
      case 7:
        ledger_->goes_away(actor.id);
        if (ledger_->jobs().at(actor.id).admitted()) {
          actor.away = true;
          actor.inbox.clear();
          actor.outbox.clear();
        }
        break;
      case 8:
        if (actor.away) comes_back(actor);
        break;
      case 9:
        actor.need = with_training_of(actor.need, some_need(false));
        ledger_->needs(actor.id, actor.need);
        break;
      case 12:
      case 13:
        asks(actor, below(12) * 32_MiB);
        break;
      case 14:
        asks(actor, 0);
        break;
      default:
        break;
    }
  }

  // What it gives back it has given back before it says so.
  void asks(Actor& actor, std::uint64_t wants) {
    if (actor.stopped || actor.away || !ledger_->jobs().at(actor.id).admitted()) return;
    if (!actor.stubborn) actor.leased = std::min(actor.leased, wants);
    actor.outbox.push_back({.number = ++actor.asked, .holds = actor.leased, .wants = wants});
  }

  void comes_back(Actor& actor) {  // what was leased is its base now, if it cannot give it back
    if (actor.stubborn) actor.holds += actor.leased;
    actor.leased = 0;
    if (actor.holds == 0) {  // another program in its process
      ledger_->ends(actor.id);
      actor.id = ledger_->joins(actor.need);
      actor.away = false;
      return;
    }
    ledger_->returns(actor.id, actor.need, actor.holds);
    actor.away = false;
  }

  void obey(Actor& actor, const Told& order) {
    if (actor.stubborn && order.bytes < actor.holds + actor.leased)
      actor.holds += actor.leased;
    else
      actor.holds = order.bytes;
    actor.leased = 0;
    actor.outbox.push_back({.answer = true, .number = order.number, .holds = actor.holds});
  }

  // Jobs answer what they have had, the ledger hears some of it; then new orders go out.
  void work(bool all = false) {
    for (auto& actor : actors_) {
      while (!actor.inbox.empty() && !actor.stopped && !actor.away) {
        const auto told = actor.inbox.front();
        actor.inbox.pop_front();
        if (told.order)
          obey(actor, told);
        else if (told.number == actor.asked)
          actor.leased = told.bytes;
      }
      while (!actor.outbox.empty() && (all || below(3) != 0)) {
        const auto said = actor.outbox.front();
        actor.outbox.pop_front();
        if (said.answer)
          ledger_->answers(actor.id, said.number, said.holds, now_);
        else
          ledger_->asks(actor.id, said.number, said.wants, said.holds);
      }
    }
    for (const auto& order : ledger_->orders(now_)) {
      auto& actor = of(order.job);
      ASSERT_LE(order.bytes, order.most);
      actor.inbox.push_back({true, order.number, order.bytes});
      if (order.bytes > actor.holds && !actor.stopped) actor.holds = order.bytes;  // at once
    }
    for (const auto& lease : ledger_->lends()) {
      of(lease.job).inbox.push_back({false, lease.number, lease.bytes});
      lent_ += lease.bytes;
    }
  }

  Actor& of(JobId id) {
    const auto found = std::ranges::find(actors_, id, &Actor::id);
    EXPECT_NE(found, actors_.end());
    EXPECT_FALSE(found->away) << "something for one that cannot be reached";
    return *found;
  }

  void never_over() {
    std::uint64_t held = 0;
    for (const auto& actor : actors_) held += actor.holds + actor.leased;
    ASSERT_LE(held, total_) << "really held";
    ASSERT_LE(ledger_->counted(), total_);
  }

  // All behave, come back and answer: then nothing is left to be done, and who fits is in.
  void never_stuck() {
    for (auto& actor : actors_) {
      actor.stopped = actor.stubborn = false;
      if (actor.away) comes_back(actor);
    }
    for (int round = 0; round < 100; ++round) {
      now_ += 1'000;
      work(true);
      never_over();
    }
    std::uint64_t least = 0;
    bool waits = false;
    for (const auto& [id, job] : ledger_->jobs()) {
      EXPECT_TRUE(job.state == State::settled || job.state == State::waiting);
      if (job.admitted()) least += job.need.least;
    }
    least = ledger_->counted() - held_beyond_least();
    std::map<std::uint64_t, Ranks> trainings;
    for (const auto& [id, job] : ledger_->jobs())
      if (job.need.training != 0) trainings[job.need.training].add(job);
    for (const auto& [training, ranks] : trainings)
      if (ranks.in != 0) {
        if (!lost_.contains(training)) {  // after a restart, one that ended may be waited for
          EXPECT_EQ(ranks.waiting, 0u) << "one is in, so all are that have come";
        }
        least += ranks.absent_bytes();
      }
    for (const auto& [id, job] : ledger_->jobs()) {
      if (job.admitted() || waits) continue;
      waits = true;  // the first that waits does not fit beside the others' least
      const auto training = trainings.find(job.need.training);
      EXPECT_GT(least + (training == trainings.end() ? job.need.least : training->second.bytes()),
                total_);
    }
    if (!waits) leases_come();
  }
  // Nobody else holds one, so each gets what its plan is for, but for changes that are not ordered.
  void leases_come() {
    std::uint64_t unordered = 0;
    for (const auto& [id, job] : ledger_->jobs())
      unordered += std::max<std::uint64_t>(8_MiB, job.counted() / 32);
    for (auto& actor : actors_) asks(actor, 0);
    for (int round = 0; round < 20; ++round) work(true);
    for (auto& actor : actors_) {
      const auto& job = ledger_->jobs().at(actor.id);
      const auto most = job.most - job.base();
      asks(actor, most);
      work(true), work(true);
      never_over();
      EXPECT_GE(actor.leased + unordered, most) << "of a base of " << job.base();
      asks(actor, 0);
      work(true);
    }
  }
  // Of one training; those that have come and gone are taken for some that are still to come.
  struct Ranks {
    std::uint64_t in = 0, waiting = 0, least = 0, waiting_least = 0, all = 0;
    void add(const Ledger::Job& job) {
      ++(job.admitted() ? in : waiting);
      waiting_least += job.admitted() ? 0 : job.need.least;
      least = std::max(least, job.need.least), all = job.need.ranks;
    }
    std::uint64_t absent_bytes() const { return (all - std::min(all, in + waiting)) * least; }
    std::uint64_t bytes() const { return absent_bytes() + waiting_least; }
  };

  std::uint64_t held_beyond_least() const {
    std::uint64_t bytes = 0;
    for (const auto& [id, job] : ledger_->jobs())
      if (job.admitted()) bytes += job.counted() - std::min(job.counted(), job.need.least);
    return bytes;
  }

  std::mt19937 random_;
  std::set<std::uint64_t> lost_;              // trainings of which a rank has ended
  std::uint64_t training_ = 0, to_come_ = 0;  // whose ranks come now, and how many more
  std::uint64_t total_, now_ = 0;
  std::optional<Ledger> ledger_;
  std::vector<Actor> actors_;
  std::uint64_t lent_ = 0;
};

TEST(LedgerProperties, NeverOverNeverStuck) {
  std::uint64_t lent = 0;
  for (unsigned seed = 0; seed < 400 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.run(300);
    lent += world.lent();
  }
  EXPECT_GT(lent, 10'000_MiB);
}

}  // namespace
}  // namespace sentinel
