// The ledger, by hand and at random: never over, never stuck.
#include "broker/ledger.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/units.h"

namespace sentinel {
namespace {

using State = Ledger::State;
using testing::ElementsAre;
using testing::Gt;
using testing::IsEmpty;

constexpr Need kSmall{.least = 32_MiB, .most = 1024_MiB};

// Answers each order at once, until none comes.
void settle(Ledger& ledger, std::uint64_t now = 0) {
  for (int round = 0; round < 20; ++round) {
    const auto orders = ledger.orders(now);
    if (orders.empty()) return;
    for (const auto& order : orders) ledger.answers(order.job, order.number, order.bytes, now);
  }
  FAIL() << "orders never end";
}

TEST(Ledger, FirstJobGetsAllItCanUse) {
  Ledger ledger({.total = 512_MiB});
  const auto job = ledger.joins(kSmall);
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(job).ordered, 512_MiB);
}

TEST(Ledger, GrowthWaitsForTheAcknowledgementOfAShrink) {
  Ledger ledger({.total = 512_MiB});
  const auto first = ledger.joins(kSmall);
  settle(ledger);
  const auto second = ledger.joins(kSmall);
  const auto orders = ledger.orders(0);
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_EQ(orders[0].job, first);
  EXPECT_EQ(orders[0].bytes, 256_MiB);
  EXPECT_EQ(ledger.counted(), 512_MiB);
  EXPECT_THAT(ledger.orders(1), IsEmpty());
  ledger.answers(first, orders[0].number, orders[0].bytes, 1);
  const auto then = ledger.orders(1);
  ASSERT_EQ(then.size(), 1u);
  EXPECT_EQ(then[0].job, second);
  EXPECT_EQ(then[0].bytes, 256_MiB);
}

TEST(Ledger, WhoCannotShrinkKeepsWhatItHas) {
  Ledger ledger({.total = 512_MiB});
  const auto first = ledger.joins(kSmall);
  settle(ledger);
  const auto second = ledger.joins(kSmall);
  const auto order = ledger.orders(0).at(0);
  ledger.answers(first, order.number, 400_MiB, 0);
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(first).counted(), 400_MiB);
  EXPECT_EQ(ledger.jobs().at(second).counted(), 112_MiB);
  EXPECT_EQ(ledger.wakes_at(), 30'000u);
  settle(ledger, 30'000);  // it is asked again
  EXPECT_EQ(ledger.jobs().at(second).counted(), 256_MiB);
}

TEST(Ledger, WhoDoesNotAnswerIsNotWaitedForAndKeepsItsGrant) {
  Ledger ledger({.total = 512_MiB});
  const auto first = ledger.joins({.least = 32_MiB, .most = 300_MiB});
  settle(ledger);
  const auto second = ledger.joins(kSmall);
  const auto third = ledger.joins(kSmall);
  const auto orders = ledger.orders(0);
  EXPECT_EQ(orders[0].job, first);
  for (const auto& order : orders)
    if (order.job != first) ledger.answers(order.job, order.number, order.bytes, 0);
  settle(ledger, 10'000);
  EXPECT_EQ(ledger.jobs().at(first).state, State::silent);
  EXPECT_EQ(ledger.jobs().at(first).counted(), 300_MiB);
  EXPECT_EQ(ledger.jobs().at(second).counted() + ledger.jobs().at(third).counted(), 212_MiB);
  ledger.answers(first, orders[0].number, orders[0].bytes, 20'000);
  settle(ledger, 20'000);
  EXPECT_GT(ledger.jobs().at(second).counted(), 106_MiB);
}

TEST(Ledger, JobsThatDoNotFitWaitInTheirOrder) {
  Ledger ledger({.total = 128_MiB});
  const auto first = ledger.joins({.least = 64_MiB, .most = 64_MiB});
  const auto large = ledger.joins({.least = 100_MiB, .most = 100_MiB});
  const auto small = ledger.joins({.least = 32_MiB, .most = 32_MiB});
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(large).state, State::waiting);
  EXPECT_EQ(ledger.jobs().at(small).state, State::waiting) << "nobody overtakes";
  EXPECT_EQ(ledger.why_waiting(large), "100 MiB are needed; 64.0 MiB of 128 MiB are taken");
  EXPECT_NE(ledger.why_waiting(small).find("1 jobs wait in front"), std::string::npos);
  ledger.ends(first);
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(large).counted(), 100_MiB);
  ledger.ends(large);
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(small).counted(), 32_MiB);
  EXPECT_FALSE(ledger.could_fit({.least = 129_MiB}));
  EXPECT_TRUE(ledger.could_fit({.least = 128_MiB}));
}

TEST(Ledger, RanksAreAdmittedTogether) {
  constexpr Need kRank{.least = 100_MiB, .most = 400_MiB, .training = 7, .ranks = 3};
  Ledger ledger({.total = 512_MiB});
  EXPECT_FALSE(ledger.could_fit({.least = 171_MiB, .training = 7, .ranks = 3}));
  const auto other = ledger.joins({.least = 250_MiB, .most = 512_MiB});
  settle(ledger);
  const auto first = ledger.joins(kRank);
  settle(ledger);
  EXPECT_FALSE(ledger.jobs().at(first).admitted()) << "the other two would have no room";
  EXPECT_EQ(ledger.why_waiting(first),
            "300 MiB are needed by 3 ranks together; 512 MiB of 512 MiB are taken");
  ledger.ends(other);
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(first).ordered, 312_MiB) << "200 MiB are kept";
  const auto late = ledger.joins({.least = 150_MiB, .most = 150_MiB});
  const auto large = ledger.joins({.least = 100_MiB, .most = 300_MiB});
  settle(ledger);
  EXPECT_TRUE(ledger.jobs().at(late).admitted());
  EXPECT_FALSE(ledger.jobs().at(large).admitted());
  const auto second = ledger.joins(kRank), third = ledger.joins(kRank);
  settle(ledger);
  for (const auto rank : {first, second, third})
    EXPECT_GE(ledger.jobs().at(rank).ordered, 100_MiB) << "before those who came before them";
  EXPECT_FALSE(ledger.jobs().at(large).admitted());
  EXPECT_LE(ledger.counted(), 512_MiB);
  for (const auto rank : {first, second, third}) ledger.ends(rank);
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(large).ordered, 300_MiB) << "nothing is kept any more";
}

TEST(Ledger, OnlySoManyRanksAsThereAreComeTogether) {
  constexpr Need kRank{.least = 100_MiB, .most = 100_MiB, .training = 7, .ranks = 2};
  Ledger ledger({.total = 300_MiB});
  const auto first = ledger.joins(kRank);
  ledger.ends(first);
  const auto again = ledger.joins(kRank);
  settle(ledger);
  EXPECT_TRUE(ledger.jobs().at(again).admitted());
  const auto second = ledger.joins(kRank), another = ledger.joins(kRank),
             last = ledger.joins(kRank);
  settle(ledger);
  EXPECT_TRUE(ledger.jobs().at(second).admitted());
  EXPECT_TRUE(ledger.jobs().at(another).admitted()) << "by itself";
  EXPECT_FALSE(ledger.jobs().at(last).admitted()) << "and it keeps nobody waiting for a third";
  ledger.ends(another);
  settle(ledger);
  EXPECT_TRUE(ledger.jobs().at(last).admitted());
}

TEST(Ledger, AMissingRankLeavesThePoolForLeases) {
  constexpr Need kPeaked{.least = 32_MiB, .most = 400_MiB, .usual = 200_MiB};
  Ledger ledger({.total = 656_MiB});
  ledger.joins({.least = 16_MiB, .most = 16_MiB, .training = 7, .ranks = 2});
  const auto first = ledger.joins(kPeaked);
  settle(ledger);
  const auto second = ledger.joins(kPeaked);
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(first).ordered, 200_MiB);
  EXPECT_EQ(ledger.jobs().at(second).most, 400_MiB);
}

TEST(Ledger, ARankThatIsGoneIsNotWaitedFor) {
  constexpr Need kRank{.least = 100_MiB, .most = 400_MiB, .training = 7, .ranks = 2};
  Ledger ledger({.total = 400_MiB});
  const auto first = ledger.joins(kRank), second = ledger.joins(kRank);
  settle(ledger);
  ledger.ends(second);
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(first).ordered, 400_MiB);
}

TEST(Ledger, AfterARestartNothingIsGrantedUntilEachHolderIsBackOrDead) {
  Ledger ledger({.total = 512_MiB});
  const auto back = ledger.remember(kSmall, 200_MiB), dead = ledger.remember(kSmall, 100_MiB);
  const auto fresh = ledger.joins(kSmall);
  EXPECT_THAT(ledger.orders(0), IsEmpty());
  EXPECT_NE(ledger.why_waiting(fresh).find("2 of its jobs have to come back"), std::string::npos);
  ledger.returns(back, kSmall, 200_MiB);
  EXPECT_THAT(ledger.orders(100'000), IsEmpty());
  ledger.ends(dead);
  settle(ledger, 100'000);
  EXPECT_TRUE(ledger.jobs().at(fresh).admitted());
  EXPECT_LE(ledger.counted(), 512_MiB);
}

TEST(Ledger, SuggestedSharesHoldForTheJobsTheyAreFor) {
  Ledger ledger({.total = 512_MiB});
  const auto first = ledger.joins(kSmall), second = ledger.joins(kSmall);
  ledger.suggest({{first, 400_MiB}, {second, 112_MiB}});
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(first).ordered, 400_MiB);
  EXPECT_EQ(ledger.jobs().at(second).ordered, 112_MiB);
  ledger.ends(second);
  settle(ledger);
  EXPECT_EQ(ledger.jobs().at(first).ordered, 512_MiB);
}

TEST(Division, GoesWhereMostIsGained) {
  const Need steep{.least = 32_MiB, .most = 256_MiB, .curve = {{32_MiB, 4}, {256_MiB, 1}}},
      flat{.least = 32_MiB, .most = 256_MiB, .curve = {{32_MiB, 1.2}, {256_MiB, 1}}};
  EXPECT_THAT(divide(320_MiB, std::vector{steep, flat}, 2_MiB), ElementsAre(256_MiB, 64_MiB));
  EXPECT_THAT(divide(320_MiB, std::vector{flat, steep}, 2_MiB), ElementsAre(64_MiB, 256_MiB));
  EXPECT_THAT(divide(320_MiB, std::vector{steep, steep}, 2_MiB), ElementsAre(160_MiB, 160_MiB));
}

TEST(Division, AStepIsWorthTheWayToIt) {  // nothing is gained before 200 MiB, and then all
  const Need step{
      .least = 32_MiB, .most = 200_MiB, .curve = {{32_MiB, 3}, {190_MiB, 3}, {200_MiB, 1}}},
      flat{.least = 32_MiB, .most = 200_MiB, .curve = {{32_MiB, 1.1}, {200_MiB, 1}}};
  EXPECT_THAT(divide(240_MiB, std::vector{flat, step}, 2_MiB), ElementsAre(40_MiB, 200_MiB));
}

TEST(Division, WithoutCurvesByWhatIsWantedAndPriority) {
  const Need plain{.least = 32_MiB, .most = 512_MiB}, little{.least = 32_MiB, .most = 64_MiB};
  EXPECT_THAT(divide(512_MiB, std::vector{plain, plain}, 2_MiB), ElementsAre(256_MiB, 256_MiB));
  EXPECT_THAT(divide(1024_MiB, std::vector{plain, little}, 2_MiB), ElementsAre(512_MiB, 64_MiB));
  Need urgent = plain;
  urgent.priority = 3;
  EXPECT_THAT(divide(128_MiB, std::vector{plain, urgent}, 2_MiB), ElementsAre(48_MiB, 80_MiB));
}

// Two jobs that hold half of what they need in peaks alone.
constexpr Need kPeaky{.least = 32_MiB, .most = 400_MiB, .usual = 200_MiB};

class Leases : public testing::Test {
 protected:
  void SetUp() override { settle(ledger_); }
  const Ledger::Job& job(JobId id) const { return ledger_.jobs().at(id); }
  std::uint64_t lent(JobId id) const { return job(id).leased; }

  Ledger ledger_{{.total = 640_MiB}};
  const JobId first_ = ledger_.joins(kPeaky), second_ = ledger_.joins(kPeaky);
};

TEST_F(Leases, JobsPlanForMoreThanThereIsTogether) {
  for (const auto id : {first_, second_}) {
    EXPECT_EQ(job(id).ordered, 200_MiB);
    EXPECT_EQ(job(id).most, 400_MiB);
  }
  Ledger ample({.total = 800_MiB});
  const auto one = ample.joins(kPeaky), other = ample.joins(kPeaky);
  settle(ample);
  for (const auto id : {one, other}) EXPECT_EQ(ample.jobs().at(id).ordered, 400_MiB);
}

TEST_F(Leases, AreLentToWhoAsksFirstAndFree) {
  ledger_.asks(first_, 1, 200_MiB, 0);
  ledger_.asks(second_, 1, 100_MiB, 0);
  EXPECT_THAT(ledger_.orders(0), IsEmpty());
  auto leases = ledger_.lends();
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(leases[0].job, first_);
  EXPECT_EQ(leases[0].bytes, 200_MiB);
  EXPECT_EQ(leases[1].bytes, 40_MiB) << "of 240 MiB";
  EXPECT_EQ(ledger_.counted(), 640_MiB);
  ledger_.asks(first_, 2, 0, 0);
  leases = ledger_.lends();
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_EQ(leases[0].number, 1u) << "nobody waits, but what is free by then comes";
  EXPECT_EQ(lent(second_), 100_MiB);
}

TEST_F(Leases, AreNoMoreThanThePlanIsFor) {
  ledger_.asks(first_, 1, 900_MiB, 0);
  EXPECT_THAT(ledger_.orders(0), IsEmpty());
  ledger_.lends();
  EXPECT_EQ(lent(first_), 200_MiB);
  EXPECT_THAT(ledger_.lends(), IsEmpty()) << "once";
}

TEST_F(Leases, EndForWhoWaitsToBeAdmitted) {
  ledger_.asks(first_, 1, 200_MiB, 0);
  ledger_.orders(0);
  ledger_.lends();
  const auto third = ledger_.joins({.least = 240_MiB, .most = 240_MiB});
  bool recalled = false;
  for (const auto& order : ledger_.orders(0)) {
    recalled |= order.job == first_;
    ledger_.asks(order.job, 2, 200_MiB, order.job == first_ ? 200_MiB : 0);
    EXPECT_THAT(ledger_.lends(), IsEmpty()) << "an order is to be answered first";
    ledger_.answers(order.job, order.number, order.bytes, 0);
  }
  EXPECT_TRUE(recalled);
  EXPECT_EQ(lent(first_), 0u);
  settle(ledger_);
  EXPECT_EQ(job(third).ordered, 240_MiB);
  ledger_.asks(first_, 3, 200_MiB, 0);
  ledger_.orders(0);
  ledger_.lends();
  EXPECT_LE(ledger_.counted(), 640_MiB);
}

TEST_F(Leases, StayCountedOfWhoCannotBeReached) {
  ledger_.asks(first_, 1, 200_MiB, 0);
  ledger_.orders(0);
  ledger_.lends();
  ledger_.goes_away(first_);
  settle(ledger_);
  EXPECT_EQ(job(first_).counted(), 400_MiB);
  EXPECT_LE(ledger_.counted(), 640_MiB);
  ledger_.returns(first_, kPeaky, 200_MiB);
  EXPECT_EQ(job(first_).counted(), 200_MiB);
  ledger_.asks(first_, 1, 200_MiB, 0);
  ledger_.ends(first_);
  settle(ledger_);
  EXPECT_EQ(ledger_.counted(), 400_MiB) << "the second has all that it can use";
}

TEST_F(Leases, AnAnswerGivesThemBack) {
  ledger_.asks(first_, 1, 200_MiB, 0);
  ledger_.orders(0);
  ledger_.lends();
  Need other = kPeaky;
  other.usual = 100_MiB;
  ledger_.needs(first_, other);
  ledger_.needs(second_, other);
  for (const auto& order : ledger_.orders(0)) {
    EXPECT_LE(ledger_.counted(), 640_MiB);
    ledger_.answers(order.job, order.number, order.bytes, 0);
  }
  EXPECT_EQ(lent(first_), 0u);
}

TEST(Division, WhatASimulatorCannotTellIsNoGain) {
  const auto flat = [](double most) {
    return Need{
        .least = 32_MiB, .most = 400_MiB, .curve = {{32_MiB, 1.5}, {200_MiB, most}, {400_MiB, 1}}};
  };
  EXPECT_THAT(divide(640_MiB, std::vector{flat(1.012), flat(1.015)}, 2_MiB),
              ElementsAre(320_MiB, 320_MiB));
  EXPECT_THAT(divide(640_MiB, std::vector{flat(1.2), flat(1.015)}, 2_MiB)[0], Gt(350_MiB));
}

TEST(Division, LeasesAreLentWhereMovesCostMore) {
  const auto peaky = [](double loss) {
    auto need = kPeaky;
    need.curve = {{need.least, 4}, {300_MiB, loss}, {need.most, 1}};
    return need;
  };
  const auto within = [&](std::uint64_t total, double loss) {
    return share(total, std::vector{peaky(loss), peaky(loss)}, 2_MiB)[1];
  };
  EXPECT_EQ(within(600_MiB, 1.05).beyond(), 0u);
  EXPECT_EQ(within(600_MiB, 1.05).most, 300_MiB);
  EXPECT_EQ(within(600_MiB, 1.3).base, 200_MiB);
  EXPECT_EQ(within(600_MiB, 1.3).most, 400_MiB) << "nothing moves";
  EXPECT_EQ(within(560_MiB, 1.3).most, 392_MiB) << "next to nothing does";
  EXPECT_LT(within(560_MiB, 1.3).base, 200_MiB) << "and more than peaks is lent";
}

TEST(Division, LeasesAreForPeaksAlone) {
  const auto of = [](std::uint64_t total, const std::vector<Need>& needs) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> shares;
    for (const auto& one : share(total, needs, 2_MiB))
      shares.emplace_back(one.base / 1_MiB, one.most / 1_MiB);
    return shares;
  };
  const Need flat{.least = 32_MiB, .most = 400_MiB};
  EXPECT_THAT(of(640_MiB, {flat, flat}), ElementsAre(std::pair(320, 320), std::pair(320, 320)));
  EXPECT_THAT(of(640_MiB, {flat, kPeaky}), ElementsAre(std::pair(320, 320), std::pair(320, 320)))
      << "nobody else lends";
  EXPECT_THAT(of(300_MiB, {kPeaky, kPeaky}), ElementsAre(std::pair(150, 150), std::pair(150, 150)));
  EXPECT_THAT(of(900_MiB, {kPeaky, kPeaky, kPeaky}),
              ElementsAre(std::pair(200, 400), std::pair(200, 400), std::pair(200, 400)));
  EXPECT_THAT(of(200_MiB, {kPeaky}), ElementsAre(std::pair(200, 200)));
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Need> needs(1 + random() % 5);
    std::uint64_t least = 0;
    for (auto& need : needs) {
      need.least = (1 + random() % 40) * 1_MiB;
      need.most = need.least + random() % 500 * 1_MiB;
      need.usual = random() % 3 == 0 ? 0 : need.least + random() % (need.most - need.least + 1);
      least += need.least;
    }
    const auto total = least + random() % 900 * 1_MiB;
    const auto shares = share(total, needs, 2_MiB);
    auto bytes = lease_pool(shares);
    for (std::size_t i = 0; i < needs.size(); ++i) {
      bytes += shares[i].base;
      EXPECT_GE(shares[i].base, needs[i].least);
      EXPECT_LE(shares[i].base, shares[i].most);
      EXPECT_LE(shares[i].most, needs[i].most);
    }
    EXPECT_LE(bytes, total);
  }
}

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
