#include "capture/userfault/availability.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>

#include "capture/userfault/fault_loop.h"
#include "capture/userfault/uffd_abi.h"

namespace sentinel {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kModern = UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_EVENT_REMAP |
                                  UFFD_FEATURE_MOVE | UFFD_FEATURE_THREAD_ID;

CaptureMechanism find(const std::vector<CaptureMechanism>& all, const std::string& name) {
  for (const CaptureMechanism& mechanism : all)
    if (mechanism.name == name) return mechanism;
  ADD_FAILURE() << "no mechanism " << name;
  return {};
}

TEST(Availability, AModernKernelHasAll) {
  for (const CaptureMechanism& mechanism : judge_capture({.userfaultfd = {0, -1, -1, kModern}})) {
    EXPECT_TRUE(mechanism.available) << mechanism.name;
    EXPECT_THAT(mechanism.reason + mechanism.remedy, IsEmpty());
  }
}

TEST(Availability, WithoutAnythingEveryRowSaysWhyAndWhatToDo) {
  for (const int refused : {EPERM, ENOSYS, EACCES, EMFILE})
    for (const CaptureMechanism& mechanism :
         judge_capture({.userfaultfd = {ENOENT, refused, refused, 0}})) {
      EXPECT_FALSE(mechanism.available) << mechanism.name;
      EXPECT_FALSE(mechanism.reason.empty()) << mechanism.name;
      EXPECT_FALSE(mechanism.remedy.empty()) << mechanism.name;
    }
}

TEST(Availability, UserModeOnlyIsRefused) {
  const auto row = find(judge_capture({.userfaultfd = {EACCES, EPERM, 0, 0}}), "userfaultfd");
  EXPECT_FALSE(row.available);
  EXPECT_THAT(row.reason, HasSubstr("read(2)"));
  EXPECT_THAT(row.remedy, HasSubstr("vm.unprivileged_userfaultfd=1"));
  EXPECT_THAT(row.remedy, HasSubstr("/dev/userfaultfd"));
  EXPECT_THAT(row.remedy, HasSubstr("root"));
}

TEST(Availability, ASeccompProfileIsNamed) {
  for (const int refused : {EPERM, ENOSYS}) {
    const auto row =
        find(judge_capture({.userfaultfd = {ENOENT, refused, refused, 0}}), "userfaultfd");
    EXPECT_THAT(row.remedy, HasSubstr("Docker's default seccomp profile")) << refused;
  }
}

TEST(Availability, TheDeviceNodeIsTheFirstRemedy) {
  for (const int device : {ENOENT, EACCES, EPERM})
    for (const int user_only : {0, EPERM}) {
      const auto row =
          find(judge_capture({.userfaultfd = {device, EPERM, user_only, 0}}), "userfaultfd");
      EXPECT_LT(row.remedy.find("/dev/userfaultfd"),
                std::min(row.remedy.find("seccomp profile"), row.remedy.find("sysctl")))
          << row.remedy;
      EXPECT_EQ(row.remedy.starts_with("let this user open"), device != ENOENT) << row.remedy;
    }
}

TEST(Availability, OldKernelsLackSingleMechanisms) {
  const auto rows = judge_capture({.userfaultfd = {ENOENT, 0, -1, UFFD_FEATURE_EVENT_REMAP}});
  EXPECT_TRUE(find(rows, "userfaultfd").available);
  EXPECT_TRUE(find(rows, "counting to moving").available);
  EXPECT_THAT(find(rows, "page counting").remedy, HasSubstr("5.14"));
  EXPECT_THAT(find(rows, "frame moving").remedy, HasSubstr("6.8"));
}

TEST(Availability, SmallWindowsNeedTheProcessorAndProc) {
  const std::string name = "counting with windows under 64 pages";
  const UffdProbe fine{0, -1, -1, kModern};
  EXPECT_FALSE(find(judge_capture({fine, false, true}), name).available);
  EXPECT_FALSE(find(judge_capture({fine, true, false}), name).available);
}

TEST(Availability, ProbingThisMachineAgreesWithUsingIt) {
  const auto row = find(judge_capture(probe_capture()), "userfaultfd");
  try {
    FaultLoop::open();
    EXPECT_TRUE(row.available);
  } catch (const std::exception& refused) {
    EXPECT_FALSE(row.available) << refused.what();
  }
}

}  // namespace
}  // namespace sentinel
