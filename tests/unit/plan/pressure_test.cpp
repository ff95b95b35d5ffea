#include "plan/gaps/pressure.h"

#include <gmock/gmock.h>

#include "plan/check/verify.h"
#include "plan/gaps/decisions.h"
#include "plan/layout/compaction.h"
#include "plan/policies/g10/bandwidth_calendar.h"
#include "unit/plan/profiles.h"
#include "unit/plan/swaps.h"

namespace sentinel::plan {
namespace {

using namespace sentinel::testing;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr std::uint64_t kPage = 4096;

Profile four_ops() {  // at 0, 100, 100, 300; the step ends at 400 us
  ProfileBuilder b;
  for (const double us : {100, 0, 200, 100}) b.op(0, us, {});
  return b.profile;
}

TEST(StepTimes, GoOnInTheNextStep) {
  const StepTimes times(four_ops());
  EXPECT_EQ(times.start_us(3), 300);
  EXPECT_EQ(times.start_us(6), 500);
  EXPECT_EQ(times.end_us(7), 800);
  EXPECT_EQ(times.first_from(100), 1u);
  EXPECT_EQ(times.last_until(100), 2u);
  EXPECT_EQ(times.first_from(301), 4u);
  EXPECT_EQ(times.last_until(450), 4u);
  EXPECT_EQ(times.first_from(550), 7u);
}

// 5, 12, 8, 11 of 10 bytes: ops 1 and 3 are critical, 0 and 100 us long.
TEST(Pressure, CriticalTimeShrinksWithWhatLeaves) {
  const std::uint64_t held[] = {5, 12, 8, 11};
  Pressure pressure(held, 10, StepTimes(four_ops()));
  EXPECT_EQ(pressure.critical_us(0, 4), 100);
  EXPECT_EQ(pressure.critical_us(2, 6), 100);  // op 3, then ops 0 and 1 of the next step
  pressure.release(3, 6, 1);
  EXPECT_EQ(pressure.critical_us(0, 4), 0);
  EXPECT_FALSE(pressure.fits());
  pressure.release(1, 2, 1);
  EXPECT_TRUE(pressure.fits());
  EXPECT_EQ(pressure.room_since(0, 4, 1), 4u);  // op 3 is full
  EXPECT_EQ(pressure.room_since(4, 7, 2), 6u);  // op 1 of the next step holds 10
  EXPECT_EQ(pressure.room_since(6, 7, 2), 6u);
}

TEST(Pressure, AgreesWithCountingOpByOp) {
  std::mt19937_64 random(5);
  ProfileBuilder b;
  std::vector<std::uint64_t> held;
  for (int k = 0; k < 37; ++k) {
    b.op(0, static_cast<double>(random() % 50), {});
    held.push_back(1000 + random() % 1000);
  }
  Pressure pressure(held, 1200, StepTimes(b.profile));
  std::vector<bool> critical;
  for (std::uint64_t h : held) critical.push_back(h > 1200);
  for (int i = 0; i < 300; ++i) {
    const auto from = static_cast<std::uint32_t>(random() % 37),
               to = from + 1 + static_cast<std::uint32_t>(random() % 37);
    for (std::uint32_t p = from; p < to; ++p) {
      held[p % 37] -= 3;
      if (held[p % 37] <= 1200) critical[p % 37] = false;
    }
    pressure.release(from, to, 3);
    double us = 0;
    for (std::uint32_t p = from; p < to; ++p)
      if (critical[p % 37]) us += b.profile.ops[p % 37].us;
    EXPECT_NEAR(pressure.critical_us(from, to), us, 1e-9);
    std::uint32_t since = to;
    while (since > from && held[(since - 1) % 37] + 100 <= 1200) --since;
    EXPECT_EQ(pressure.room_since(from, to, 100), since);
  }
}

// Ops of 100 us: 10 pages each to the SSD, 50 to the host, 50 over the link that they share.
TEST(BandwidthCalendar, TransfersTakeWhatIsFree) {
  ProfileBuilder b;
  for (int k = 0; k < 8; ++k) b.op(0, 100, {});
  const StepTimes times(b.profile);
  BandwidthCalendar calendar(times, host_and_ssd(), true);
  EXPECT_NEAR(calendar.write_us(2, 15 * kPage), 150, 1e-6);
  EXPECT_THAT(calendar.write_end(2, 15 * kPage, 1, 8), Optional(3u));
  calendar.book_write(2, 15 * kPage, 1, 3);
  EXPECT_TRUE(calendar.write_blocked(2, 10 * kPage, 1));
  EXPECT_FALSE(calendar.write_blocked(2, 10 * kPage, 2));
  EXPECT_THAT(calendar.write_end(2, 10 * kPage, 1, 8), Optional(4u));  // 5 in op 2, 5 in op 3
  EXPECT_EQ(calendar.write_end(2, 10 * kPage, 1, 3), std::nullopt);
  // Of op 1's 50 pages 10 are gone, of op 2's 5.
  EXPECT_THAT(calendar.write_end(1, 80 * kPage, 1, 8), Optional(3u));
  EXPECT_THAT(calendar.write_end(1, 86 * kPage, 1, 8), Optional(4u));
  calendar.book_write(1, 85 * kPage, 1, 3);
  EXPECT_THAT(calendar.write_end(2, 10 * kPage, 1, 8), Optional(4u));  // the link is full in op 2
  calendar.book_write(2, 10 * kPage, 1, 4);
  EXPECT_THAT(calendar.write_end(2, 10 * kPage, 1, 8), Optional(5u));
}

TEST(BandwidthCalendar, ReadsAreAsLateAsIsSafeAndCrossTheStepsEnd) {
  ProfileBuilder b;
  for (int k = 0; k < 8; ++k) b.op(0, 100, {});
  const StepTimes times(b.profile);
  BandwidthCalendar calendar(times, host_and_ssd(), true);
  EXPECT_THAT(calendar.read_start(2, 15 * kPage, 3, 9), Optional(7u));
  calendar.book_read(2, 15 * kPage, 3, 9);  // all of op 0, half of op 7
  EXPECT_THAT(calendar.read_start(2, 10 * kPage, 3, 9), Optional(6u));
  EXPECT_EQ(calendar.read_start(2, 10 * kPage, 7, 9), std::nullopt);
  EXPECT_THAT(calendar.read_start(2, 10 * kPage, 0, 2), Optional(1u));
  calendar.book_read(2, 10 * kPage, 0, 2);
  EXPECT_EQ(calendar.read_start(2, 10 * kPage, 0, 2), std::nullopt);
}

// Without an arbiter the host has what the SSD leaves of the link: 40 pages an op.
TEST(BandwidthCalendar, ADividedLinkIsNotShared) {
  ProfileBuilder b;
  for (int k = 0; k < 8; ++k) b.op(0, 100, {});
  const StepTimes times(b.profile);
  BandwidthCalendar calendar(times, host_and_ssd(), false);
  EXPECT_NEAR(calendar.read_us(1, 40 * kPage), 100, 1e-6);
  calendar.book_write(2, 10 * kPage, 1, 2);
  EXPECT_THAT(calendar.write_end(1, 40 * kPage, 1, 8), Optional(2u));
  EXPECT_THAT(calendar.write_end(1, 41 * kPage, 1, 8), Optional(3u));
}

// As many granules as small tensors are alive at once, by size; verify() finds no two that overlap.
TEST(Compaction, ReusesSpaceAndOverlapsNothing) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Profile profile = random_graph(seed);
    const auto all = storages(profile);
    std::uint64_t small = 0;
    for (const Storage& s : all) small += !s.persistent && s.bytes < kPage;
    const Machine machine = host_and_ssd();
    const Basis basis(profile, machine, compact(profile, all, kPage));
    const Plan plan = decided_plan("test", basis, {.fast_bytes = 1024_GiB}, {}).plan;
    EXPECT_EQ(plan.placements.size(), small);
    EXPECT_LE(plan.region_bytes, 12 * kPage * 8) << seed;
    EXPECT_THAT(verify(plan, profile), IsEmpty()) << seed;
  }
}

}  // namespace
}  // namespace sentinel::plan
