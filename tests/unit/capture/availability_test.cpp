#include "capture/userfault/availability.h"

#include <gmock/gmock.h>

#include <cerrno>

#include "capture/userfault/fault_loop.h"
#include "capture/userfault/uffd_abi.h"

namespace sentinel {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kModern = UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_EVENT_REMAP |
                                  UFFD_FEATURE_MOVE | UFFD_FEATURE_THREAD_ID | UFFD_FEATURE_RWP;

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

// What changes the least first: one device for one user, then a setting of the whole machine.
TEST(Availability, TheDeviceIsNamedBeforeTheSysctl) {
  for (const int device : {EACCES, ENOENT, EPERM})
    for (const int refused : {0, EPERM}) {
      const auto remedy =
          find(judge_capture({.userfaultfd = {device, EPERM, refused, 0}}), "userfaultfd").remedy;
      const auto first = remedy.find("/dev/userfaultfd"), then = remedy.find("sysctl");
      EXPECT_LT(first, then) << remedy;
      EXPECT_NE(then, remedy.npos) << remedy;
    }
}

TEST(Availability, ADeviceThatIsThereIsOpenedToTheUser) {
  const auto there = find(judge_capture({.userfaultfd = {EACCES, EPERM, 0, 0}}), "userfaultfd"),
             absent = find(judge_capture({.userfaultfd = {ENOENT, EPERM, 0, 0}}), "userfaultfd");
  EXPECT_THAT(there.remedy, HasSubstr("setfacl"));
  EXPECT_THAT(there.remedy, testing::Not(HasSubstr("--device")));
  EXPECT_THAT(absent.remedy, HasSubstr("--device /dev/userfaultfd"));
}

TEST(Availability, ASeccompProfileIsNamed) {
  for (const int refused : {EPERM, ENOSYS}) {
    const auto row =
        find(judge_capture({.userfaultfd = {ENOENT, refused, refused, 0}}), "userfaultfd");
    EXPECT_THAT(row.remedy, HasSubstr("Docker's default seccomp profile")) << refused;
  }
}

TEST(Availability, OldKernelsLackSingleMechanisms) {
  const auto rows = judge_capture({.userfaultfd = {ENOENT, 0, -1, UFFD_FEATURE_EVENT_REMAP}});
  EXPECT_TRUE(find(rows, "userfaultfd").available);
  EXPECT_TRUE(find(rows, "counting to moving").available);
  EXPECT_THAT(find(rows, "page counting").remedy, HasSubstr("5.14"));
  EXPECT_THAT(find(rows, "frame moving").remedy, HasSubstr("6.8"));
  EXPECT_FALSE(find(rows, "counting private memory").available);
}

// What no released kernel has is nothing to be mended.
TEST(Availability, CountingPrivateMemoryIsToldAndNotAskedFor) {
  const auto without = kModern & ~std::uint64_t{UFFD_FEATURE_RWP};
  const auto absent = find(judge_capture({.userfaultfd = {0, -1, -1, without}}),
                           "counting private memory"),
             there = find(judge_capture({.userfaultfd = {0, -1, -1, kModern}}),
                          "counting private memory");
  EXPECT_FALSE(absent.available);
  EXPECT_THAT(absent.reason, HasSubstr("read-write protection"));
  EXPECT_THAT(absent.remedy, testing::StartsWith("none needed"));
  EXPECT_TRUE(there.available);
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
