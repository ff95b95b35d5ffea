#include "plan/layout/layout.h"

#include <gmock/gmock.h>

#include <map>

#include "plan/layout/pack.h"
#include "unit/plan/profiles.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;

std::map<std::uint32_t, Placement> by_tensor(const Layout& layout) {
  std::map<std::uint32_t, Placement> map;
  for (const Placement& p : layout.placements) map[p.tensor.value] = p;
  return map;
}

// The first two live together at op 1, so they stack; the third lives after the first and takes its
// place; the small one lives beside the first only and lies where the second will be.
TEST(Pack, ReusesAddressesOfWhatDied) {
  std::vector<PackedItem> blocks{{128, 0, 1}, {128, 1, 3}, {128, 2, 3}, {64, 0, 0}};
  EXPECT_EQ(pack(blocks), 256u);
  EXPECT_EQ(blocks[0].offset, 0u);
  EXPECT_EQ(blocks[1].offset, 128u);
  EXPECT_EQ(blocks[2].offset, 0u);
  EXPECT_EQ(blocks[3].offset, 128u);
}

// Four layers of two ops. a and b live over layers 0 to 3, c over 0 to 2, s in layer 1 only.
struct FourLayers {
  ProfileBuilder b;
  TensorId a, c, d, s;
  explicit FourLayers(std::uint64_t bytes) {
    a = b.temporary(bytes, 0, 7);
    d = b.temporary(bytes, 0, 7);
    c = b.temporary(bytes, 1, 5);
    s = b.temporary(bytes, 2, 3);
    b.op(0, 1, {}, {a, d});
    b.op(0, 1, {a}, {c});
    b.op(1, 1, {a}, {s});
    b.op(1, 1, {s});
    b.op(2, 1, {c});
    b.op(2, 1, {c});
    b.op(3, 1, {a});
    b.op(3, 1, {d});
  }
};

TEST(Layout, FourRulesAtPageGranularity) {
  FourLayers m(1000);
  const Layout layout = lay_out(m.b.profile, storages(m.b.profile), 4096, 1_GiB);
  auto p = by_tensor(layout);
  const auto page = [&](TensorId t) { return p[t.value].offset / 4096; };
  EXPECT_EQ(page(m.a), page(m.d)) << "rule 2: the same layers share pages";
  EXPECT_LT(p[m.a.value].offset, p[m.d.value].offset) << "rule 2: more accessed first";
  EXPECT_NE(page(m.a), page(m.c)) << "rule 3: other layers do not";
  EXPECT_NE(page(m.a), page(m.s)) << "rule 4";
  EXPECT_NE(page(m.c), page(m.s)) << "rule 4";
  EXPECT_EQ(layout.reserved_bytes, 4096u);
  for (const Group& g : layout.groups) EXPECT_EQ(g.offset % 4096, 0u);
}

TEST(Layout, SmallLongLivedTensorsStayResidentUnderLargeGranules) {
  FourLayers m(1000);
  const Layout layout = lay_out(m.b.profile, storages(m.b.profile), 2_MiB, 1_GiB);
  auto p = by_tensor(layout);
  EXPECT_EQ(layout.groups[p[m.a.value].group.index()].pool, Pool::resident);
  EXPECT_EQ(p[m.a.value].group, p[m.c.value].group);
  EXPECT_EQ(layout.groups[p[m.s.value].group.index()].pool, Pool::short_lived);
  EXPECT_EQ(layout.region_bytes, 4_MiB);
}

TEST(Layout, ResidentAreaIsBoundedByTheBudget) {
  FourLayers m(200_KiB);  // 600 KiB of long-lived ones, more than a sixteenth of 4 MiB
  const Layout layout = lay_out(m.b.profile, storages(m.b.profile), 2_MiB, 4_MiB);
  auto p = by_tensor(layout);
  EXPECT_EQ(layout.groups[p[m.a.value].group.index()].pool, Pool::long_lived);
}

// a and d (0 to 3) and c (0 to 2) would waste most of two frames; their lifetimes are similar.
TEST(Layout, SimilarLifetimesFillFrames) {
  FourLayers m(600_KiB);
  const Layout layout = lay_out(m.b.profile, storages(m.b.profile), 2_MiB, 1_GiB);
  auto p = by_tensor(layout);
  EXPECT_EQ(p[m.a.value].group, p[m.c.value].group);
  EXPECT_EQ(layout.region_bytes, 4_MiB) << "one frame for the pool, one for the rest";
}

TEST(Layout, WholeGranulesAreAligned) {
  FourLayers m(2_MiB);
  for (const Placement& p : lay_out(m.b.profile, storages(m.b.profile), 2_MiB, 1_GiB).placements)
    EXPECT_EQ(p.offset % 2_MiB, 0u);
}

TEST(Layout, LastStepsInstanceLiesWhereItsSuccessorDoes) {
  ProfileBuilder b;
  const TensorId out = b.temporary(5000, 2, 3), in = b.temporary(5000, 0, 0);
  b.profile.tensors[out.index()].free_op.reset();
  b.profile.tensors[in.index()].alloc_op.reset();
  for (std::uint32_t l = 0; l < 4; ++l) b.op(l, 1, {});
  const auto all = storages(b.profile);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].carried, in);
  EXPECT_EQ(all[0].last, 4u);
  auto p = by_tensor(lay_out(b.profile, all, 4096, 1_GiB));
  EXPECT_EQ(p[in.value].offset, p[out.value].offset);
}

}  // namespace
}  // namespace sentinel::plan
