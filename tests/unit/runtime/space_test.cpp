// Where tensors lie: by the plan, or where the last one of their size has died.
#include "runtime/step/space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>
#include <vector>

#include "base/units.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kGranule = 2_MiB;

// Addresses that nobody touches.
class NoEngine final : public Engine, public DeviceMemory {
 public:
  NoEngine() {
    arena_ = 1ull << 40;
    arena_bytes_ = 1_GiB;
    granule_ = kGranule;
  }
  void align(std::uint64_t bytes) { alignment_ = bytes; }
  void unguard() { guarded_ = false; }
  bool on_allocate(std::uintptr_t, std::uint64_t) noexcept override { return has_room_; }
  bool on_free(std::uintptr_t, std::uint64_t, bool) noexcept override { return keeps_memory_; }

  void set_budget(std::uint64_t) override {}
  void demote(std::uintptr_t, std::uint64_t) noexcept override {}
  void promote(std::uintptr_t, std::uint64_t) noexcept override {}
  void await(std::uintptr_t, std::uint64_t) noexcept override {}
  void reuse_dead_blocks() noexcept override {}
  FaultLoop* loop() noexcept override { return nullptr; }
  int start_counting() noexcept override { return -EOPNOTSUPP; }
  int stop_counting() noexcept override { return 0; }
  void count_with(CountFault, void*) noexcept override {}
  void before_fork() noexcept override {}
  void after_fork_in_parent() noexcept override {}
  void after_fork_in_child() noexcept override {}
  EngineCounters counters() const override { return {}; }

  DeviceMemory* device() noexcept override { return this; }
  void compute_on(void*) override {}
  void forget(void*) override {}
  void finish() noexcept override {}
  void hold_pool(std::uintptr_t address, std::uint64_t bytes) noexcept override {
    held_.emplace_back(address, bytes);
  }
  void let_pool_go(std::uintptr_t address, std::uint64_t bytes) noexcept override {
    most_held_ = std::max(most_held_, held_.size());
    std::erase(held_, std::pair(address, bytes));
  }

  std::vector<std::pair<std::uintptr_t, std::uint64_t>> held_;
  std::size_t most_held_ = 0;  // when one was let go
  bool has_room_ = true, keeps_memory_ = true;
};

PlannedSlot alone(std::uint64_t offset, std::uint64_t bytes) {
  return {.offset = offset * kGranule, .bytes = bytes, .placed = true};
}

class SpaceTest : public testing::Test {
 protected:
  // Three of two granules, one of one; two that share a granule; one of the pool.
  SpaceTest() {
    space_.activate(space_.add_plan(
        {alone(0, 2 * kGranule),
         alone(2, kGranule + 1),
         alone(4, 2 * kGranule),
         alone(6, kGranule),
         alone(7, 100),
         {.offset = 7 * kGranule + 128, .bytes = 100, .placed = true},
         {.offset = 8 * kGranule, .bytes = kGranule, .placed = true, .shared = true}},
        9 * kGranule));
  }

  std::uintptr_t born(std::uint32_t slot) {
    constexpr std::uint64_t kSizes[] = {2 * kGranule, kGranule + 1, 2 * kGranule, kGranule,
                                        100,          100,          kGranule};
    return space_.allocate(kSizes[slot], slot, false)->address;
  }

  NoEngine engine_;
  Space space_{engine_};
};

TEST_F(SpaceTest, WhatHasGranulesToItselfIsBornWhereTheLastOfItsSizeDied) {
  const auto first = born(0), second = born(2);
  EXPECT_NE(first, second);
  space_.release(first);
  EXPECT_EQ(born(1), first);  // as many granules, if not as many bytes
  EXPECT_EQ(space_.address_of(0, 1), first);
  EXPECT_EQ(space_.address_of(0, 0), 0u);
  space_.release(first);
  space_.release(second);
  EXPECT_EQ(born(0), second);
  EXPECT_EQ(born(1), first);
}

// A plan of a profile that was recorded elsewhere lays small tensors closer than a device wants it.
TEST_F(SpaceTest, WhatIsPlacedCloserThanTheEngineAlignsLiesElsewhere) {
  EXPECT_EQ(born(5) % kGranule, 128u);
  engine_.align(512);
  Space aligned(engine_);
  aligned.activate(aligned.add_plan(
      {alone(0, kGranule), {.offset = kGranule + 128, .bytes = 100, .placed = true}},
      2 * kGranule));
  EXPECT_TRUE(aligned.placed(0, 0));
  EXPECT_FALSE(aligned.placed(0, 1));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(aligned.allocate(100, 1, false)->address % 512, 0u);
}

TEST_F(SpaceTest, WhereNoMemoryIsLeftNobodyIsBornSoon) {
  const auto first = born(0), second = born(1);
  space_.release(first);
  engine_.keeps_memory_ = false;
  space_.release(second);
  EXPECT_EQ(born(2), first);
  EXPECT_NE(born(0), second);  // nor before what has never been used
  EXPECT_EQ(born(1), second);
}

TEST_F(SpaceTest, NoTwoLiveTensorsOverlap) {
  std::set<std::uintptr_t> granules;
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    const auto address = born(slot);
    for (std::uint64_t i = 0; i < (slot == 3 ? 1u : 2u); ++i)
      EXPECT_TRUE(granules.insert(address + i * kGranule).second) << slot;
  }
  EXPECT_EQ(granules.size(), 7u);
}

// A step's result that lives until the next step has made its own.
TEST_F(SpaceTest, WhatIsLeftBehindHasAPlaceOfItsOwn) {
  std::uintptr_t before = born(0);
  for (int step = 0; step < 4; ++step) {
    space_.hand_over(0, 0, 2);
    EXPECT_EQ(space_.address_of(0, 2), before);
    EXPECT_EQ(space_.address_of(0, 0), 0u);
    const auto now = born(0);
    EXPECT_NE(now, before);
    EXPECT_EQ(space_.find(reinterpret_cast<void*>(now))->slot, 0u) << "as planned, each time";
    space_.release(before);
    EXPECT_EQ(space_.address_of(0, 2), 0u);
    before = now;
  }
  space_.hand_over(0, 0, 3);  // of another size
  space_.hand_over(0, 4, 5);  // where others share its granule
  EXPECT_EQ(space_.address_of(0, 0), before);
}

TEST_F(SpaceTest, WhatIsTooLargeForItsPlaceLiesElsewhereAndKeepsItsRole) {
  for (const std::uint32_t slot : {1u, 4u, 6u}) {
    const auto place = born(slot);
    space_.release(place);
    const auto* large = space_.allocate(3 * kGranule, slot, false);
    const auto address = large->address;
    EXPECT_FALSE(large->in_its_place());
    EXPECT_EQ(large->slot, slot);
    EXPECT_EQ(space_.address_of(0, slot), address) << "moves find it";
    EXPECT_TRUE(address >= place + kGranule || address + 3 * kGranule <= place);
    EXPECT_EQ(space_.allocate(100, slot, false)->slot, LiveTensor::kUnplanned) << "given once";
    space_.release(address);
    EXPECT_EQ(born(slot), place) << "its place is free again";
    EXPECT_TRUE(space_.find(reinterpret_cast<const void*>(place))->in_its_place());
    space_.release(place);
  }
}

TEST_F(SpaceTest, WhatIsTooLargeIsHandedOver) {
  const auto address = space_.allocate(3 * kGranule, 1, false)->address;
  space_.hand_over(0, 1, 2);
  EXPECT_EQ(space_.address_of(0, 2), address);
  EXPECT_EQ(space_.address_of(0, 1), 0u);
  space_.release(address);
  std::set<std::uintptr_t> places;
  for (const std::uint32_t slot : {0u, 1u, 2u}) places.insert(born(slot));
  EXPECT_EQ(places.size(), 3u) << "no place is lost";
}

TEST_F(SpaceTest, WhatIsTooLargeAndRefusedGivesItsRoleBack) {
  engine_.unguard();
  engine_.has_room_ = false;
  EXPECT_EQ(space_.allocate(3 * kGranule, 1, false), nullptr);
  engine_.has_room_ = true;
  born(1);
  EXPECT_TRUE(space_.find(reinterpret_cast<const void*>(space_.address_of(0, 1)))->in_its_place());
}

// What is there before a plan may be away under it.
TEST_F(SpaceTest, WhatHasNoPlaceInThePlanSharesNoGranuleWithWhatWasThereBefore) {
  Space space(engine_);
  const auto granules = [](const LiveTensor& tensor) {
    return std::pair(tensor.address / kGranule, (tensor.address + tensor.bytes - 1) / kGranule);
  };
  const auto make = [&](std::uint64_t bytes) {
    return *space.allocate(bytes, LiveTensor::kUnplanned, false);
  };
  std::set<std::uintptr_t> old;
  std::vector<LiveTensor> before, after;
  for (const auto bytes : {100ul, kGranule + 4096, 3 * kGranule - 4096, 15_KiB, 100ul}) {
    before.push_back(make(bytes));
    for (auto [at, last] = granules(before.back()); at <= last; ++at) old.insert(at);
  }
  space.activate(space.add_plan({alone(0, kGranule)}, kGranule));
  for (const auto bytes : {15_KiB, 100ul, kGranule / 2, 2 * kGranule - 64, kGranule + 1}) {
    after.push_back(make(bytes));
    for (auto [at, last] = granules(after.back()); at <= last; ++at)
      EXPECT_FALSE(old.contains(at)) << bytes;
  }
  EXPECT_EQ(granules(after[0]).second, granules(after[1]).first) << "such small ones share theirs";
  EXPECT_NE(granules(after[3]).second, granules(make(100)).first) << "it fills its granules";
  // Another plan is followed meanwhile; what ends leaves its addresses to others, whole granules.
  space.activate(space.add_plan({alone(0, kGranule)}, kGranule));
  for (int round = 0; round < 1000; ++round) {
    for (auto& tensor : after) {
      space.release(tensor.address);
      tensor = make(tensor.bytes);
    }
    const auto large = make(900 * kGranule / 2);
    ASSERT_NE(large.address, 0u) << "no addresses are lost";
    space.release(large.address);
  }
  for (const auto& tensor : before) space.release(tensor.address);
  for (const auto& tensor : after) space.release(tensor.address);
  EXPECT_EQ(space.live_bytes(), 100u) << "the one that was made to compare";
}

TEST_F(SpaceTest, WhereThePlanMovesNothingTensorsLieByBestFit) {
  Space space(engine_);
  const auto make = [&] { return space.allocate(15_KiB, LiveTensor::kUnplanned, false)->address; };
  const auto before = make();
  space.activate(space.add_plan({alone(0, kGranule)}, kGranule, false));
  EXPECT_EQ(make(), before + 16_KiB);
  space.activate(space.add_plan({alone(0, kGranule)}, kGranule));
  EXPECT_NE(make() / kGranule, before / kGranule);
}

TEST_F(SpaceTest, WhereNoWholeGranuleIsFreeUnderAPlanTensorsStillBegin) {
  Space space(engine_);
  space.activate(space.add_plan({alone(0, kGranule)}, kGranule));
  std::vector<std::uintptr_t> all;
  while (const auto* tensor = space.allocate(kGranule, LiveTensor::kUnplanned, false))
    all.push_back(tensor->address);
  EXPECT_EQ(all.size(), engine_.arena_bytes() / kGranule - 1);
  EXPECT_TRUE(space.out_of_addresses());
  EXPECT_EQ(space.allocate(100, LiveTensor::kUnplanned, false), nullptr);
  space.release(all.back());
  const auto* small = space.allocate(100, LiveTensor::kUnplanned, false);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(small->address, all.back());
  EXPECT_EQ(space.allocate(kGranule, LiveTensor::kUnplanned, false), nullptr);
  space.release(all.back());
  EXPECT_NE(space.allocate(kGranule, LiveTensor::kUnplanned, false), nullptr);
}

TEST_F(SpaceTest, WhatSharesAGranuleStaysWhereThePlanHasIt) {
  const auto first = born(4), second = born(5), pooled = born(6);
  EXPECT_EQ(second - first, 128u);
  EXPECT_EQ(pooled - first, kGranule);
  space_.release(first);
  space_.release(second);
  EXPECT_EQ(born(5), second);
  EXPECT_EQ(born(4), first);
  EXPECT_NE(space_.allocate(100, 4, false)->address, first);  // in use: it lies elsewhere
}

TEST_F(SpaceTest, ThePoolOfThePlanThatIsFollowedIsHeld) {
  const auto pooled = [](std::uint64_t offset, std::uint64_t bytes) {
    return PlannedSlot{.offset = offset * kGranule,
                       .bytes = bytes * kGranule,
                       .placed = true,
                       .shared = true,
                       .reserved = true};
  };
  const auto plan = space_.add_plan(
      {pooled(4, 2), pooled(1, 3), pooled(5, 3), alone(0, kGranule), pooled(9, 1)}, 10 * kGranule);
  EXPECT_TRUE(engine_.held_.empty());
  space_.activate(plan);
  space_.activate(plan);
  const auto region = space_.allocate(kGranule, 1, false)->address - kGranule;
  EXPECT_EQ(engine_.held_, (std::vector{std::pair{region + kGranule, 7 * kGranule},
                                        std::pair{region + 9 * kGranule, kGranule}}));
  const auto next = space_.add_plan({pooled(0, 1)}, kGranule);
  space_.activate(next);
  EXPECT_EQ(engine_.most_held_, 3u) << "what begins next is held before the memory of this is free";
  EXPECT_EQ(engine_.held_.size(), 1u);
  space_.activate(0);
  EXPECT_TRUE(engine_.held_.empty());
}

TEST_F(SpaceTest, WhereNothingGuardsWhatIsRefusedHasNotBegun) {
  engine_.unguard();
  engine_.has_room_ = false;
  EXPECT_EQ(space_.allocate(kGranule, 3, false), nullptr);
  EXPECT_EQ(space_.allocate(kGranule, LiveTensor::kUnplanned, false), nullptr);
  EXPECT_EQ(space_.live_bytes(), 0u);
  engine_.has_room_ = true;
  EXPECT_NE(born(3), 0u);
  EXPECT_EQ(space_.live_bytes(), kGranule);
  space_.release(space_.address_of(0, 3));
  EXPECT_EQ(space_.live_bytes(), 0u);
}

// Pages that hold a tensor smaller than themselves, one each.
std::size_t small_pages(NoEngine& engine, std::uint64_t budget) {
  Space space(engine, budget);
  std::set<std::uintptr_t> pages;
  std::size_t own = 0;
  for (int i = 0; i < 6000; ++i) {
    const auto* tensor = space.allocate(100, LiveTensor::kUnplanned, true);
    own += tensor->reserved == 4096 && pages.insert(tensor->address / 4096).second ? 1 : 0;
  }
  return own;
}

TEST_F(SpaceTest, PagesOfSmallTensorsTakeASixteenthOfTheBudgetAtMost) {
  EXPECT_EQ(small_pages(engine_, 0), 4096u);
  EXPECT_EQ(small_pages(engine_, 32_MiB), 512u);
  EXPECT_EQ(small_pages(engine_, 1_GiB), 4096u);
}

}  // namespace
}  // namespace sentinel
