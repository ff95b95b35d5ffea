// The ledger, by hand.
#include "broker/ledger.h"

#include <gmock/gmock.h>

#include "base/units.h"

namespace sentinel {
namespace {

using State = Ledger::State;
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

}  // namespace
}  // namespace sentinel
