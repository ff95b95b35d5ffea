// What is known of jobs that were studied.
#include "broker/server/gains.h"

#include <gmock/gmock.h>

#include "base/units.h"
#include "unit/plan/profiles.h"

namespace sentinel {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

StudiedJob job_of(JobId id) {
  testing::ProfileBuilder b;
  const auto weight = b.persistent(8_MiB);
  for (std::size_t k = 0; k < 8; ++k) b.op(0, 1000, {weight});
  return {.id = id,
          .profile = std::make_shared<const Profile>(b.profile),
          .digest = 7,
          .policy = "sentinel",
          .machine = "optane",
          .need = {.least = 32_MiB, .most = 64_MiB},
          .wants_curve = true};
}

TEST(Gains, ACurveIsFoundOnce) {
  KnownCurves known;
  const auto job = job_of(1);
  EXPECT_FALSE(known.find(job));
  const std::atomic<bool> over = false;
  auto found = study_jobs({job}, 128_MiB, over);
  ASSERT_THAT(found.failures, IsEmpty());
  ASSERT_THAT(found.curves, SizeIs(1));
  known.keep(job, found.curves.at(1));
  EXPECT_TRUE(known.find(job_of(2))) << "another process of the same training";
  auto other = job;
  other.need.most = 128_MiB;
  EXPECT_FALSE(known.find(other));
  other = job;
  other.digest = 8;
  EXPECT_FALSE(known.find(other));
  auto again = job;
  again.wants_curve = false;
  EXPECT_THAT(study_jobs({again}, 128_MiB, over).curves, IsEmpty());
}

TEST(Gains, AFailedStudyIsKnownToo) {
  const std::atomic<bool> over = false;
  auto job = job_of(1);
  job.policy = "lru";  // it makes no plan
  const auto found = study_jobs({job}, 128_MiB, over);
  EXPECT_THAT(found.failures, SizeIs(1));
  ASSERT_THAT(found.curves, SizeIs(1));
  KnownCurves known;
  known.keep(job, found.curves.at(1));
  ASSERT_TRUE(known.find(job));
  EXPECT_THAT(*known.find(job), IsEmpty());
}

TEST(Gains, AStudyThatIsOverFindsNothing) {
  const std::atomic<bool> over = true;
  const auto found = study_jobs({job_of(1)}, 128_MiB, over);
  EXPECT_THAT(found.curves, IsEmpty());
  EXPECT_THAT(found.shares, IsEmpty());
}

TEST(Gains, OnlySoManyAreKept) {
  KnownCurves known;
  auto job = job_of(1);
  for (job.digest = 0; job.digest < 200; ++job.digest) known.keep(job, {{1, 1}});
  int kept = 0;
  for (job.digest = 0; job.digest < 200; ++job.digest) kept += known.find(job) ? 1 : 0;
  EXPECT_EQ(kept, 64);
}

TEST(Gains, ACurveSaysHowBusyTheDriveIs) {
  testing::ProfileBuilder b;
  std::vector<TensorId> weights;
  for (std::size_t i = 0; i < 16; ++i) weights.push_back(b.persistent(8_MiB));
  for (const auto weight : weights) b.op(0, 1000, {weight});
  auto job = job_of(1);
  job.profile = std::make_shared<const Profile>(b.profile);
  job.need.most = 160_MiB;
  const auto found = study_jobs({job}, 160_MiB, false);
  ASSERT_THAT(found.failures, IsEmpty());
  const auto& curve = found.curves.at(1);
  ASSERT_GE(curve.size(), 2u);
  EXPECT_GT(curve.front().drive, 0.5) << "all weights pass in each step";
  EXPECT_LE(curve.front().drive, 1);
  EXPECT_EQ(curve.back().drive, 0);
}

}  // namespace
}  // namespace sentinel
