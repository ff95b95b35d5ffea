#include "plan/search/cost_model.h"

#include <gmock/gmock.h>

#include <random>

#include "plan/search/cost_run.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::ElementsAre;

constexpr std::uint64_t kPage = 4096;

// Every gap between two uses of a storage, that of persistent ones across the step's end included.
// One in `clean` was not written since its last gap.
std::vector<IdleGap> all_gaps(const Profile& profile, const std::vector<Storage>& storages,
                              std::size_t clean = SIZE_MAX) {
  std::vector<IdleGap> gaps;
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  for (std::uint32_t i = 0; i < storages.size(); ++i) {
    const Storage& s = storages[i];
    auto uses = s.uses;
    if (s.carried || uses.empty()) continue;
    if (s.persistent) uses.push_back(uses.front() + ops);
    for (std::size_t u = 0; u + 1 < uses.size(); ++u)
      if (uses[u + 1] > uses[u] + 1)
        gaps.push_back({.storage = i,
                        .use = uses[u],
                        .next = uses[u + 1],
                        .bytes = s.bytes,
                        .dirty = (i + u + 1) % clean != 0});
  }
  return gaps;
}

// a is made by op 0 and read by op 5, b 1 and 3, c 2 and 4; 10 pages each, so that 10, 20, 30, 30,
// 20, 10 pages are held. A transfer takes 40.96 us.
Profile three_tensors(double us) {
  ProfileBuilder b;
  const TensorId a = b.temporary(10 * kPage, 0, 5), x = b.temporary(10 * kPage, 1, 3),
                 c = b.temporary(10 * kPage, 2, 4);
  b.op(0, us, {}, {a});
  b.op(1, us, {}, {x});
  b.op(2, us, {}, {c});
  b.op(3, us, {x});
  b.op(4, us, {c});
  b.op(5, us, {a});
  return b.profile;
}

CostModel model_of(const Profile& profile, const std::vector<Storage>& all, std::uint64_t limit,
                   double lead) {
  return CostModel({.profile = profile,
                    .machine = two_tiers(kPage),
                    .storages = all,
                    .gaps = all_gaps(profile, all),
                    .limit = limit,
                    .lead = lead});
}

// All kept, ops 2 and 3 hold 10 pages too many. With a swapped and ops of 100 us: the write is over
// at 140.96, before op 2 needs its space; the fetch has to begin 81.92 us before op 5, so at op 4,
// when b is gone: nothing waits.
TEST(CostModel, HidesWhatFitsBehindCompute) {
  const Profile profile = three_tensors(100);
  const auto all = storages(profile);
  const CostModel model = model_of(profile, all, 20 * kPage, 2);
  ASSERT_EQ(model.size(), 3u);
  EXPECT_EQ(model.item(0).in, 4u);
  CostRun run(model);
  EXPECT_EQ(run.cost(), (Cost{20 * kPage, 600 * 1024}));
  EXPECT_EQ(run.trial(0, Remedy::swap), (Cost{0, 600 * 1024, 10 * kPage}));
  EXPECT_EQ(run.cost(), (Cost{20 * kPage, 600 * 1024}));
}

// Ops of 30 us: the write of a takes from 30 to 70.96, op 2 waits for its space from 60 on. Ops 2
// and 3 end at 130.96; op 4 triggers the fetch, which ends at 171.92; op 5 waits for it, and ends
// at 201.92.
TEST(CostModel, WaitsForSpaceAndForArrival) {
  const Profile profile = three_tensors(30);
  const auto all = storages(profile);
  const CostModel model = model_of(profile, all, 20 * kPage, 0.5);
  CostRun run(model);
  const Cost cost = run.trial(0, Remedy::swap);
  EXPECT_EQ(cost.excess, 0u);
  EXPECT_NEAR(cost.us(), 201.92, 0.01);
}

// w -> op 0 -> x -> op 1 -> y -> op 2 -> z; ops 3, 4, 5 read z, y, x. y again needs op 1 (20 us)
// and x; where x is to be recomputed later too, op 0 (10 us) goes before, and once more for x
// itself: its first remake was for y only.
TEST(CostModel, ReplaysWhatIsMissingFirst) {
  ProfileBuilder b;
  const TensorId w = b.persistent(kPage), x = b.temporary(10 * kPage, 0, 5),
                 y = b.temporary(10 * kPage, 1, 4), z = b.temporary(10 * kPage, 2, 3);
  b.op(0, 10, {w}, {x});
  b.op(1, 20, {w, x}, {y});
  b.op(2, 30, {w, y}, {z});
  b.op(3, 100, {w, z});
  b.op(4, 100, {w, y});
  b.op(5, 100, {w, x});
  const auto all = storages(b.profile);
  const CostModel model = model_of(b.profile, all, 31 * kPage, 1);
  ASSERT_EQ(model.size(), 2u);  // of x, whose gap is 1 to 5, and y, 2 to 4
  CostRun run(model);
  EXPECT_NEAR(run.trial(0, Remedy::recompute).us(), 370, 0.01);
  EXPECT_NEAR(run.trial(1, Remedy::recompute).us(), 380, 0.01);
  run.apply(0, Remedy::recompute);
  EXPECT_NEAR(run.trial(1, Remedy::recompute).us(), 400, 0.01);
  run.apply(1, Remedy::recompute);
  EXPECT_NEAR(static_cast<double>(run.replay_ticks()) / kTicksPerUs, 40, 0.01);
}

// Blocks that add to what came in: op 3l makes a of h, op 3l + 1 b of a, op 3l + 2 the next h of h
// and b. The backward pass reads each h. A chain that went through all blocks first would end at
// its cap before it came to a and b.
TEST(CostModel, ABlocksOutputIsMadeAgainFromTheBlockBefore) {
  constexpr std::size_t kBlocks = 30, kBack = 3 * kBlocks;
  ProfileBuilder b;
  std::vector<TensorId> h{b.persistent(10 * kPage)};
  for (std::size_t l = 0; l < kBlocks; ++l)
    h.push_back(b.temporary(10 * kPage, 3 * l + 2, kBack + kBlocks - 1 - l));
  for (std::size_t l = 0; l < kBlocks; ++l) {
    const TensorId a = b.temporary(kPage, 3 * l, 3 * l + 1),
                   c = b.temporary(kPage, 3 * l + 1, 3 * l + 2);
    b.op(0, 10, {h[l]}, {a});
    b.op(0, 10, {a}, {c});
    b.op(0, 10, {h[l], c}, {h[l + 1]});
  }
  for (std::size_t l = kBlocks; l-- > 0;) b.op(0, 10, {h[l + 1]});
  const auto all = storages(b.profile);
  std::vector<IdleGap> gaps;
  for (const IdleGap& gap : all_gaps(b.profile, all))
    if (gap.use < kBack && gap.next >= kBack && gap.next < kBack + kBlocks) gaps.push_back(gap);
  const CostModel model({.profile = b.profile,
                         .machine = two_tiers(kPage),
                         .storages = all,
                         .gaps = gaps,
                         .limit = 100 * kPage});
  ASSERT_EQ(model.size(), kBlocks - 1);  // the last one is read at once
  for (std::uint32_t i = 0; i < model.size(); ++i) {
    ASSERT_TRUE(model.recomputable(i)) << i;
    EXPECT_EQ(model.replay_ticks(i), 30 * 1024) << i;
  }
}

class Incremental : public ::testing::TestWithParam<std::uint64_t> {};

// Every trial and every change equals an evaluation in full, on one slower tier and on two of which
// the first fills up.
TEST_P(Incremental, EqualsFullEvaluation) {
  std::mt19937_64 random(GetParam());
  const Profile profile =
      GetParam() % 3 == 0 ? random_graph(GetParam()) : random_training(GetParam(), {.layers = 40});
  const auto all = storages(profile);
  Machine machine = two_tiers(kPage, GetParam() % 2 ? 1 : 20);
  if (GetParam() % 4 < 2) {
    machine.tiers.push_back({.name = "slower", .read_bw = 2e8, .write_bw = 3e8, .latency_us = 20});
    machine.tiers[1].capacity = peak_live_bytes(profile) / 8;
  }
  const CostModel model({.profile = profile,
                         .machine = machine,
                         .storages = all,
                         .gaps = all_gaps(profile, all, 4),
                         .limit = peak_live_bytes(profile) * (4 + GetParam() % 7) / 10,
                         .lead = 0.5 * static_cast<double>(GetParam() % 6)});
  if (model.size() == 0) return;
  CostRun run(model), full(model);
  std::vector<Remedy> choices;
  for (std::uint32_t i = 0; i < model.size(); ++i)
    choices.push_back(static_cast<Remedy>(random() % (model.recomputable(i) ? 3 : 2)));
  EXPECT_EQ(run.evaluate(choices), full.evaluate(choices));
  for (int n = 0; n < 300; ++n) {
    const auto item = static_cast<std::uint32_t>(random() % model.size());
    const auto remedy = static_cast<Remedy>(random() % (model.recomputable(item) ? 3 : 2));
    auto changed = choices;
    changed[item] = remedy;
    const Cost cost = full.evaluate(changed);
    ASSERT_EQ(run.trial(item, remedy), cost) << n;
    ASSERT_EQ(run.cost(), full.evaluate(choices)) << n;
    if (random() % 3 != 0) continue;
    run.apply(item, remedy);
    choices = changed;
    ASSERT_EQ(run.cost(), cost) << n;
    ASSERT_EQ(run.choices(), choices);
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, Incremental, ::testing::Range<std::uint64_t>(1, 61));

// Where memory does not bind, a trial looks at little more than the blocks in which its item acts.
TEST(CostModel, TrialsAreCheapWhereNothingWaits) {
  const Profile profile = random_training(5, {.layers = 400});
  const auto all = storages(profile);
  const CostModel model({.profile = profile,
                         .machine = two_tiers(kPage, 50),
                         .storages = all,
                         .gaps = all_gaps(profile, all),
                         .limit = 2 * peak_live_bytes(profile)});
  CostRun run(model);
  const std::uint64_t before = run.ops_evaluated();
  std::uint64_t trials = 0;
  for (std::uint32_t i = 0; i < model.size(); i += 7)
    if (model.item(i).next < model.ops()) run.trial(i, Remedy::swap), ++trials;
  ASSERT_GT(trials, 0u);
  EXPECT_LT((run.ops_evaluated() - before) / trials, 10 * CostRun::kBlock);
  EXPECT_GT(model.ops(), 100 * CostRun::kBlock);
}

}  // namespace
}  // namespace sentinel::plan
