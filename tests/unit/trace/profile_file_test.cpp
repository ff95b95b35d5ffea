// How a profile comes to its place, and what is there until then.
#include "trace/database/profile_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>

#include "trace/store.h"
#include "unit/base/folder.h"

namespace sentinel {
namespace {

using testing::HasSubstr;

const ProfileMeta kOld{.complete = true, .model = "old"}, kNew{.complete = true, .model = "new"};

class ProfileFileTest : public testing::Test {
 protected:
  ProfileFileTest() {
    setenv("TMPDIR", own_.c_str(), 1);
    std::filesystem::create_directory(own_);
    std::filesystem::create_directory(shared_);
  }
  ~ProfileFileTest() override { unsetenv("TMPDIR"); }
  void let_others_in() { ASSERT_EQ(chmod(shared_.c_str(), 0777), 0); }
  std::string model() const { return read_profile(profile_).meta.model; }
  static std::size_t files(const std::string& folder) {
    const std::filesystem::directory_iterator each(folder);
    return static_cast<std::size_t>(std::distance(begin(each), end(each)));
  }

  const Folder folder_;
  const std::string own_ = folder_ / "own", shared_ = folder_ / "shared", profile_ = shared_ + "/p";
};

TEST_F(ProfileFileTest, WhatIsNeverFinishedLeavesWhatWasThere) {
  write_profile(profile_, {.meta = kOld});
  { const ProfileWriter writer(profile_, kNew, Comes::when_finished); }
  EXPECT_EQ(model(), "old");
  EXPECT_EQ(files(shared_), 1u);
}

TEST_F(ProfileFileTest, ARecordingCanBeReadAtOnce) {
  const ProfileWriter writer(profile_, kNew);
  EXPECT_EQ(model(), "new");
}

TEST_F(ProfileFileTest, WhereOthersMayExchangeFilesNothingIsUnderWay) {
  let_others_in();
  for (const auto comes : {Comes::at_once, Comes::when_finished}) {
    ProfileWriter writer(profile_, kNew, comes);
    EXPECT_EQ(files(shared_), 0u);
    EXPECT_EQ(files(own_), 1u);
    writer.finish(kNew);
    EXPECT_EQ(model(), "new");
    EXPECT_EQ(files(shared_), 1u);
    EXPECT_EQ(files(own_), 0u);
    std::filesystem::remove(profile_);
  }
}

TEST_F(ProfileFileTest, ARecordingThatEndsEarlyComesThereToo) {
  let_others_in();
  { const ProfileWriter writer(profile_, kNew); }
  EXPECT_FALSE(read_profile(profile_).meta.complete);
  EXPECT_EQ(files(own_), 0u);
}

TEST_F(ProfileFileTest, ThereMustBeAPlaceToWriteIt) {
  let_others_in();
  ASSERT_EQ(chmod(own_.c_str(), 0777), 0);
  EXPECT_THAT(error_of([&] { write_profile(profile_, {.meta = kNew}); }), HasSubstr("TMPDIR"));
}

TEST_F(ProfileFileTest, ARecordingsFilesAreBelievedWhereNobodyExchangesThem) {
  const std::string link = folder_ / "link";
  std::filesystem::create_symlink(profile_, link);
  ProfileWriter writer(profile_, kOld);
  writer.add(Layer{.name = "in the log"});
  writer.commit();
  EXPECT_EQ(read_profile(link).layers.size(), 1u) << "the log beside the target";
  let_others_in();
  EXPECT_THAT(error_of([&] { read_profile(profile_); }), HasSubstr("others may have changed"));
}

}  // namespace
}  // namespace sentinel
