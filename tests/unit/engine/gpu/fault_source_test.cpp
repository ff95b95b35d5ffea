// The source of a GPU's page faults: the seam's contract with fake_cupti.cpp, whose faults are the
// processor's, and what it makes of records that a test writes.
#include "engine/gpu/fault_source.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <cstdlib>
#include <set>
#include <utility>

#include "base/units.h"
#include "contract/access_source.h"
#include "engine/gpu/managed_driver.h"
#include "sentinel/error.h"
#include "unit/engine/gpu/fake_gpu.h"
#include "unit/places.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096;

struct Cupti {
  static std::string absent() { return ""; }
  Cupti(std::size_t pages, std::uint32_t)
      : bytes_(round_up(pages * kPage, 2_MiB)),
        driver_(gpu::make_managed_driver(gpu::open_driver(0, test::kFakeCuda))),
        arena_(driver_->reserve(bytes_)),
        source_(*driver_, gpu::open_cupti(test::kFakeCuda, 0), arena_, bytes_) {}
  ~Cupti() { driver_->unreserve(arena_, bytes_); }
  AccessSource& source() { return source_; }
  std::uintptr_t page(std::size_t i) { return arena_ + i * kPage; }
  void touch(std::size_t i, bool write, unsigned) {
    auto* const word = reinterpret_cast<volatile std::uint64_t*>(page(i));
    if (write)
      *word = i;
    else
      (void)*word;
  }
  std::uint64_t bytes_;
  std::unique_ptr<gpu::Driver> driver_;
  std::uintptr_t arena_;
  gpu::FaultSource source_;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Cupti, AccessSourceContract, Cupti);

// ---------------------------------------------------------------- records

struct Written final : gpu::PageFaults {
  struct Next {
    std::vector<gpu::PageFault> faults;
    std::uint64_t lost = 0;
    bool refused = false;
  };
  explicit Written(Next& next) : next(next) {}
  std::uint64_t take(std::vector<gpu::PageFault>& out) override {
    if (next.refused) throw Error("cuptiActivityFlushAll: CUPTI_ERROR_UNKNOWN");
    out.insert(out.end(), next.faults.begin(), next.faults.end());
    next.faults.clear();
    return std::exchange(next.lost, 0);
  }
  Next& next;
};

class FaultSourceTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 16_MiB;
  ~FaultSourceTest() override { EXPECT_THAT(device.complaints(), testing::IsEmpty()); }
  void arm(std::uint64_t offset, std::uint64_t bytes, std::uint32_t tag) {
    const ArmRange range{arena + offset, bytes, 1, tag};
    ASSERT_EQ(source.arm({&range, 1}), 0);
  }
  void fault(std::uint64_t offset, bool write = false) {
    next.faults.push_back({arena + offset, write});
  }
  std::vector<PageCount> drained() {
    std::vector<PageCount> counts;
    EXPECT_EQ(source.drain(counts), 0);
    return counts;
  }

  gpu::FakeGpu device{1, 16, 2_MiB};
  const std::uintptr_t arena = device.manage(kBytes);
  Written::Next next;
  gpu::FaultSource source{device, std::make_unique<Written>(next), arena, kBytes};
};

// Several of the device's processors fault on the page before it comes.
TEST_F(FaultSourceTest, APageCountsOnceBetweenDrains) {
  arm(0, 2_MiB, 3);
  fault(kPage, true);
  fault(kPage, false);
  fault(0);
  fault(kPage, true);
  const auto counts = drained();
  ASSERT_EQ(counts.size(), 1u);
  EXPECT_EQ(counts[0].tag, 3u);
  EXPECT_EQ(counts[0].reads, 1u);
  EXPECT_EQ(counts[0].writes, 1u);
  fault(kPage);
  EXPECT_EQ(drained().at(0).reads, 1u);
}

TEST_F(FaultSourceTest, AFaultGoesToWhatWasArmedWhenItCame) {
  arm(0, 2_MiB, 1);
  fault(0);
  arm(0, 2_MiB, 2);
  fault(0);
  const auto counts = drained();
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(counts[0].reads + counts[1].reads, 2u);
}

TEST_F(FaultSourceTest, WhatIsNotArmedOrNotOursIsNotCounted) {
  arm(0, 2_MiB, 1);
  fault(4_MiB);
  next.faults.push_back({arena + kBytes, true});
  next.faults.push_back({arena - kPage, true});
  next.faults.push_back({0, true});
  EXPECT_TRUE(drained().empty());
}

// Neighbours that came along do not fault, so all that may have come is moved back.
TEST_F(FaultSourceTest, WhatWasOpenedIsMovedBackWithItsNeighbours) {
  arm(0, kBytes, 1);
  EXPECT_EQ(device.prefetched_out(), kBytes);
  drained();
  EXPECT_EQ(device.prefetched_out(), kBytes);  // nothing was opened
  std::set<std::uintptr_t> blocks;
  for (const std::uint64_t offset : {std::uint64_t{3} * kPage, 1_MiB, 9_MiB}) {
    fault(offset);
    blocks.insert((arena + offset) / 2_MiB * 2_MiB);
  }
  drained();
  std::uint64_t moved = 0;
  for (const auto block : blocks) moved += block + 2_MiB - std::max(block, arena);
  EXPECT_EQ(device.prefetched_out(), kBytes + moved);
  EXPECT_EQ(device.prefetched_in(), 0u);
}

TEST_F(FaultSourceTest, LostRecordsAreStated) {
  arm(0, 2_MiB, 1);
  EXPECT_EQ(source.info().missed, 0);
  for (std::uint64_t page = 0; page < 3; ++page) fault(page * kPage);
  next.lost = 1;
  drained();
  EXPECT_DOUBLE_EQ(source.info().missed, 0.25);
  EXPECT_FALSE(source.info().exact);
}

TEST_F(FaultSourceTest, WhatIsRefusedIsAnError) {
  arm(0, 2_MiB, 1);
  next.refused = true;
  const ArmRange range{arena, 2_MiB, 1, 1};
  std::vector<PageCount> counts;
  EXPECT_EQ(source.arm({&range, 1}), -EIO);
  EXPECT_EQ(source.disarm({&range, 1}), -EIO);
  EXPECT_EQ(source.drain(counts), -EIO);
  EXPECT_EQ(source.failure(), "cuptiActivityFlushAll: CUPTI_ERROR_UNKNOWN");
  next.refused = false;
  EXPECT_EQ(source.drain(counts), 0);
  EXPECT_EQ(source.failure(), "");
}

// ---------------------------------------------------------------- the library

std::string refused(const std::string& library) {
  try {
    gpu::open_cupti(library, 0);
  } catch (const Error& error) {
    return error.what();
  }
  return "not refused";
}

TEST(CuptiLibrary, WhatItRefusesHasTheCallsNameAndWhatToDo) {
  const struct {
    const char *call, *code, *name, *remedy;
  } expected[] = {
      {"cuptiActivityConfigureUnifiedMemoryCounter", ":28",
       "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED", "does not tell its page faults"},
      {"cuptiActivityEnable", ":35", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
       "NVreg_RestrictProfilingToAdminUsers=0"},
      {"cuptiActivityRegisterCallbacks", ":999", "CUPTI_ERROR_UNKNOWN", ""},
  };
  for (const auto& [call, code, name, remedy] : expected) {
    setenv("SENTINEL_FAKE_CUPTI_FAIL", (std::string(call) + code).c_str(), 1);
    const auto told = refused(test::kFakeCuda);
    EXPECT_THAT(told, testing::HasSubstr(std::string(call) + ": " + name));
    EXPECT_THAT(told, testing::HasSubstr(remedy));
  }
  unsetenv("SENTINEL_FAKE_CUPTI_FAIL");
  EXPECT_EQ(refused(test::kFakeCuda), "not refused");
}

TEST(CuptiLibrary, WhatItDroppedIsMissed) {
  setenv("SENTINEL_FAKE_CUPTI_DROPPED", "3", 1);
  Cupti cupti(1, 0);
  unsetenv("SENTINEL_FAKE_CUPTI_DROPPED");
  const ArmRange range{cupti.page(0), kPage, 1, 1};
  ASSERT_EQ(cupti.source().arm({&range, 1}), 0);
  cupti.touch(0, true, 0);
  std::vector<PageCount> counts;
  ASSERT_EQ(cupti.source().drain(counts), 0);
  EXPECT_EQ(counts.at(0).writes, 1u);
  EXPECT_DOUBLE_EQ(cupti.source().info().missed, 0.75);
}

TEST(CuptiLibrary, IsMissedByItsNames) {
  EXPECT_FALSE(gpu::cupti_is_here("libno-such.so"));
  EXPECT_THAT(refused("libno-such.so"), testing::HasSubstr("no libno-such.so, libno-such.so.13"));
}

}  // namespace
}  // namespace sentinel
