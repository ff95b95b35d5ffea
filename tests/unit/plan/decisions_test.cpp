#include "plan/gaps/decisions.h"

#include <gmock/gmock.h>

#include "plan/check/verify.h"
#include "plan/step/level.h"
#include "plan/step/parts.h"
#include "sentinel/error.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kPage = 4096;

// w is read by op 0 and makes a; b follows from a; c from b; ops 4 and 5 read c, b and a backwards.
struct Chained {
  ProfileBuilder b;
  TensorId w = b.persistent(kPage), first, second, third;
  Chained() {
    first = b.temporary(4 * kPage, 0, 5);
    second = b.temporary(4 * kPage, 1, 4);
    third = b.temporary(4 * kPage, 2, 3);
    b.op(0, 100, {w}, {first});
    b.op(1, 100, {first}, {second});
    b.op(2, 100, {second}, {third});
    b.op(3, 100, {third}, {});
    b.op(4, 100, {second}, {});
    b.op(5, 100, {first}, {});
  }
};

std::uint32_t storage_of(const Profile& profile, TensorId t) {
  const auto all = storages(profile);
  for (std::uint32_t i = 0; i < all.size(); ++i)
    if (all[i].tensor == t) return i;
  return UINT32_MAX;
}

TEST(Level, RangesMayCrossTheStepsEnd) {
  Level level(std::vector<std::uint64_t>{1, 2, 3, 4});
  level.add(3, 6, 10);  // ops 3, 0, 1
  EXPECT_EQ(level.at(0), 11);
  EXPECT_EQ(level.at(1), 12);
  EXPECT_EQ(level.at(2), 3);
  EXPECT_EQ(level.at(3), 14);
  EXPECT_EQ(level.most(2, 5), 14);
  EXPECT_EQ(level.last_above(0, 4, 11), 3u);
  EXPECT_EQ(level.last_above(2, 6, 11), 5u);  // op 1 of the next step
  EXPECT_EQ(level.last_above(2, 3, 3), std::nullopt);
}

TEST(IdleGaps, OfEveryStorageCyclically) {
  Chained c;
  const auto gaps = idle_gaps(c.b.profile, storages(c.b.profile), two_tiers(kPage));
  std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, bool, bool>> seen;
  for (const IdleGap& g : gaps) seen.emplace_back(g.storage, g.use, g.next, g.dirty, g.needed);
  const auto all = storages(c.b.profile);
  EXPECT_THAT(seen, ElementsAre(std::tuple(storage_of(c.b.profile, c.w), 0u, 6u, false, true),
                                std::tuple(storage_of(c.b.profile, c.first), 1u, 5u, true, true),
                                std::tuple(storage_of(c.b.profile, c.second), 2u, 4u, true, true)));
  Machine exclusive = two_tiers(kPage);
  exclusive.exclusive = true;
  for (const IdleGap& g : idle_gaps(c.b.profile, all, exclusive)) EXPECT_TRUE(g.dirty);
}

// 13 pages live at op 2, 9 allowed: `first` leaves after op 1; op 2 has no room for the write, so
// it waits for it. Room for its return is from op 4 on, where `third` is gone.
TEST(DecidedPlan, SwapsAndFetchesAsEarlyAsThereIsRoom) {
  Chained c;
  const PlanOptions options{.fast_bytes = 9 * kPage};
  const std::uint32_t s = storage_of(c.b.profile, c.first);
  const auto decided = decided_plan("test", c.b.profile, two_tiers(kPage), options,
                                    {{.storage = s, .use = 1, .next = 5, .remedy = Remedy::swap}});
  EXPECT_THAT(verify(decided.plan, c.b.profile), IsEmpty());
  ASSERT_EQ(decided.plan.moves.size(), 2u);
  EXPECT_EQ(decided.plan.moves[0].trigger, OpId(1));
  EXPECT_EQ(decided.plan.moves[0].deadline, OpId(1));
  EXPECT_EQ(decided.plan.moves[1].trigger, OpId(4));
  EXPECT_THAT(decided.held,
              ElementsAre(5 * kPage, 9 * kPage, 9 * kPage, 9 * kPage, 9 * kPage, 5 * kPage));
}

// 100 bytes a us: the four pages of `first` are written from 200 to 364 us, and op 4 is the first
// to start after that. A second write waits for it; one at the step's end delays the next step's.
TEST(Pace, WritesQueue) {
  const Chained c;
  const Machine machine = two_tiers(kPage, 0.1);
  const Pace pace(c.b.profile, machine, {});
  EXPECT_THAT(pace.written(std::vector<Pace::Write>{{1, 0, 1, 4 * kPage}, {2, 0, 1, 4 * kPage}}),
              ElementsAre(4u, 6u));
  EXPECT_THAT(pace.written(std::vector<Pace::Write>{{1, 0, 1, 4 * kPage}, {5, 0, 1, 8 * kPage}}),
              ElementsAre(5u, 10u));
  EXPECT_EQ(pace.in_time(0, 5, 1, kPage), 4u);
  EXPECT_EQ(pace.in_time(0, 5, 1, 4 * kPage), 1u);
  // An op that waits long enough finds it written, be it the next one; a fetch for it is not in
  // time because it waited.
  for (std::uint32_t waiting : {2u, 3u}) {
    std::vector<double> waits(6, 0);
    waits[waiting] = 100;
    const Pace slower(c.b.profile, machine, waits);
    EXPECT_THAT(slower.written(std::vector<Pace::Write>{{1, 0, 1, 4 * kPage}}), ElementsAre(3u));
    EXPECT_EQ(slower.in_time(0, waiting, 1, kPage), waiting - 1);
  }
}

// `first` may be copied while op 1 runs (100 to 200 us), and all of it but 64 us is. What leaves
// then goes before what is copied ahead.
TEST(Pace, WhatIsCopiedAheadIsWrittenEarlier) {
  const Chained c;
  const Machine machine = two_tiers(kPage, 0.1);
  const Pace pace(c.b.profile, machine, {});
  using Writes = std::vector<Pace::Write>;
  EXPECT_THAT(pace.written(Writes{{1, 1, 1, 4 * kPage}}), ElementsAre(3u));
  EXPECT_THAT(pace.written(Writes{{2, 2, 1, 4 * kPage}}), ElementsAre(3u));
  EXPECT_THAT(pace.written(Writes{{2, 2, 1, 4 * kPage}, {0, 0, 1, 4 * kPage}}),
              ElementsAre(5u, 3u));
}

// What a swap decided ahead would write is copied from the end of the op that wrote it last, unless
// that is when it leaves, or what it left before is still good.
TEST(DecidedPlan, CopiesAheadWhatItWouldWrite) {
  Chained c;
  const TensorId w = c.b.persistent(kPage), loss = c.b.persistent(kPage);
  c.b.profile.ops[1].in.push_back(w);
  c.b.profile.ops[4].in.push_back(w);
  c.b.profile.ops[4].out.push_back(w);
  c.b.profile.ops[2].in.push_back(loss);
  c.b.profile.ops[2].out.push_back(loss);
  for (Op& op : c.b.profile.ops) std::ranges::sort(op.in), std::ranges::sort(op.out);
  const PlanOptions options{.fast_bytes = 11 * kPage};
  const auto away = [&](TensorId t, std::uint32_t use, std::uint32_t next) {
    return Decision{.storage = storage_of(c.b.profile, t),
                    .use = use,
                    .next = next,
                    .remedy = Remedy::swap,
                    .ahead = true};
  };
  const Plan plan =
      decided_plan("test", c.b.profile, two_tiers(kPage), options,
                   {away(c.first, 1, 5), away(w, 1, 4), away(c.w, 0, 6), away(loss, 2, 8)})
          .plan;
  EXPECT_THAT(verify(plan, c.b.profile), IsEmpty());
  std::vector<std::pair<TensorId, OpId>> copies;
  for (const Move& m : plan.moves)
    if (m.direction == Direction::copy) copies.emplace_back(m.tensor, m.trigger);
  // c.w is never written; `loss` leaves when it is.
  EXPECT_THAT(copies, ElementsAre(std::pair(c.first, OpId(0)), std::pair(w, OpId(4))));
}

// Another page, read by ops 0 and 5, is away from op 1 on. There is room for it again when `first`
// has left: at once by the decisions alone, at op 4 by the pace.
TEST(DecidedPlan, ByThePaceFetchesWaitForWrites) {
  Chained c;
  const TensorId page = c.b.persistent(kPage);
  for (std::size_t k : {0, 5}) c.b.profile.ops[k].in.push_back(page);
  for (Op& op : c.b.profile.ops) std::ranges::sort(op.in);
  const Machine machine = two_tiers(kPage, 0.1);
  const std::vector<Decision> away{
      {.storage = storage_of(c.b.profile, c.first), .use = 1, .next = 5, .remedy = Remedy::swap},
      {.storage = storage_of(c.b.profile, page), .use = 0, .next = 5, .remedy = Remedy::swap}};
  const PlanOptions options{.fast_bytes = 10 * kPage};
  const Pace pace(c.b.profile, machine, {});
  const auto fetched_at = [&](const Pace* by) {
    const Plan plan = decided_plan("test", Basis(c.b.profile, machine), options, away, by).plan;
    EXPECT_THAT(verify(plan, c.b.profile), IsEmpty());
    return std::ranges::find_if(
               plan.moves,
               [&](const Move& m) { return m.tensor == page && m.direction == Direction::promote; })
        ->trigger;
  };
  EXPECT_EQ(fetched_at(nullptr), OpId(2));
  EXPECT_EQ(fetched_at(&pace), OpId(4));
}

// `second` is discarded after op 2 and remade before op 4 from `first`, which is there.
TEST(DecidedPlan, RecomputesFromWhatIsThere) {
  Chained c;
  const PlanOptions options{.fast_bytes = 13 * kPage - 1};
  const std::uint32_t s = storage_of(c.b.profile, c.second);
  EXPECT_THROW(decided_plan("test", c.b.profile, two_tiers(kPage), options,
                            {{.storage = s, .use = 2, .next = 4, .remedy = Remedy::recompute}}),
               Error);  // op 2 itself needs both
  const std::uint32_t f = storage_of(c.b.profile, c.first);
  const auto decided =
      decided_plan("test", c.b.profile, two_tiers(kPage), {.fast_bytes = 9 * kPage},
                   {{.storage = f, .use = 1, .next = 5, .remedy = Remedy::recompute}});
  EXPECT_THAT(verify(decided.plan, c.b.profile), IsEmpty());
  ASSERT_EQ(decided.plan.recomputations.size(), 1u);
  EXPECT_EQ(decided.plan.recomputations[0],
            (Recompute{.op = OpId(0), .before = OpId(5), .keep = {c.first}}));
  EXPECT_EQ(decided.recompute_us, 100);
}

// With `first` discarded too, `second` needs both ops again; what is made on the way stays, as
// there is room for it until it is read.
TEST(DecidedPlan, RecomputesInChains) {
  Chained c;
  const std::uint32_t f = storage_of(c.b.profile, c.first), s = storage_of(c.b.profile, c.second);
  const auto decided =
      decided_plan("test", c.b.profile, two_tiers(kPage), {.fast_bytes = 9 * kPage},
                   {{.storage = f, .use = 1, .next = 5, .remedy = Remedy::recompute},
                    {.storage = s, .use = 2, .next = 4, .remedy = Remedy::recompute}});
  EXPECT_THAT(verify(decided.plan, c.b.profile), IsEmpty());
  EXPECT_THAT(decided.plan.recomputations,
              ElementsAre(Recompute{.op = OpId(0), .before = OpId(4), .keep = {c.first}},
                          Recompute{.op = OpId(1), .before = OpId(4), .keep = {c.second}}));
  EXPECT_EQ(decided.recompute_us, 200);
}

// Ops 2 and 3 hold 13 pages; the last of them is named.
// Op 1 makes y of x, and op 4 wants both again: y is decided first, and x is made before it.
TEST(DecidedPlan, ReplaysBeforeAnOpAreInTheOrderOfTheStep) {
  ProfileBuilder b;
  const TensorId w = b.persistent(kPage), y = b.temporary(4 * kPage, 1, 4),
                 x = b.temporary(4 * kPage, 0, 4);
  b.op(0, 100, {w}, {x});
  b.op(1, 100, {x}, {y});
  const TensorId z = b.temporary(8 * kPage, 2, 3);
  b.op(2, 100, {w}, {z});
  b.op(3, 100, {z});
  b.op(4, 100, {x, y});
  const std::uint32_t of_y = storage_of(b.profile, y), of_x = storage_of(b.profile, x);
  ASSERT_LT(of_y, of_x);
  const auto decided =
      decided_plan("test", b.profile, two_tiers(kPage), {.fast_bytes = 12 * kPage},
                   {{.storage = of_x, .use = 1, .next = 4, .remedy = Remedy::recompute},
                    {.storage = of_y, .use = 1, .next = 4, .remedy = Remedy::recompute}});
  EXPECT_THAT(decided.plan.recomputations,
              ElementsAre(Recompute{OpId(0), OpId(4), {x}}, Recompute{OpId(1), OpId(4), {y}}));
  EXPECT_THAT(verify(decided.plan, b.profile), IsEmpty());
}

TEST(DecidedPlan, SaysWhereDecisionsDoNotSuffice) {
  Chained c;
  try {
    decided_plan("test", c.b.profile, two_tiers(kPage), {.fast_bytes = 9 * kPage}, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("op 3 (op3) holds 52.0 KiB"));
  }
  EXPECT_THROW(decided_plan("test", c.b.profile, two_tiers(kPage), {.fast_bytes = kPage}, {}),
               Error);
}

class RandomDecisions : public ::testing::TestWithParam<std::uint64_t> {};

// Whatever is decided: a plan that holds, or an error.
TEST_P(RandomDecisions, HoldOrAreRefused) {
  std::mt19937_64 random(GetParam());
  const Profile profile = in_parts(
      GetParam() % 2 ? random_graph(GetParam()) : random_training(GetParam()), random() % 2 << 20);
  const auto all = storages(profile);
  std::vector<Decision> decisions;
  for (const IdleGap& g : idle_gaps(profile, all, two_tiers(kPage))) {
    const auto remedy = static_cast<Remedy>(random() % 3);
    const auto fetch = static_cast<std::uint32_t>(g.use + 1 + random() % (g.next - g.use));
    decisions.push_back({g.storage, g.use, g.next, remedy, 1, fetch});
  }
  const std::uint64_t peak = peak_live_bytes(profile);
  for (const std::uint64_t percent : {30, 50, 70, 90}) {
    const PlanOptions options{.fast_bytes = peak * percent / 100 + kPage};
    try {
      const auto decided = decided_plan("test", profile, two_tiers(kPage), options, decisions);
      EXPECT_THAT(verify(decided.plan, profile), IsEmpty()) << percent;
    } catch (const Error&) {
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomDecisions, ::testing::Range<std::uint64_t>(1, 101));
// Each of these gave a plan that read what was not there, or kept what outlives the step.
INSTANTIATE_TEST_SUITE_P(Found, RandomDecisions,
                         ::testing::Values(221, 553, 617, 725, 739, 785, 1153, 3717, 5165));

TEST(Parts, AreTheWholeInOrder) {
  const Profile whole = random_training(5);
  const Profile parts = in_parts(whole, 1_MiB);
  std::uint64_t before = 0, after = 0;
  for (const Tensor& t : whole.tensors) before += t.bytes;
  for (const Tensor& t : parts.tensors) {
    after += t.bytes;
    EXPECT_LE(t.bytes, 1_MiB);
  }
  EXPECT_EQ(before, after);
  EXPECT_GT(parts.tensors.size(), whole.tensors.size());
  EXPECT_EQ(in_parts(whole, 0), whole);
}

}  // namespace
}  // namespace sentinel::plan
