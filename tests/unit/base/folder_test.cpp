#include "base/folder.h"

#include <gmock/gmock.h>

#include "folder.h"

namespace sentinel {
namespace {

using testing::HasSubstr;

class OtherHandTest : public ::testing::Test {
 protected:
  OtherHandTest() { std::filesystem::create_directories(inner_); }
  void set_mode(const std::string& path, mode_t mode) { ASSERT_EQ(chmod(path.c_str(), mode), 0); }
  std::string told(mode_t writers = S_IWOTH) const {
    const auto hand = other_hand_at(inner_ + "/file", writers);
    return hand ? hand->folder + ": " + print_hand(*hand) : "";
  }

  Folder folder_;
  const std::string outer_ = folder_ / "outer", inner_ = outer_ + "/inner";
};

TEST_F(OtherHandTest, NobodyElseHasAHandInAnOwnFolder) { EXPECT_EQ(told(), ""); }

TEST_F(OtherHandTest, WhoeverMayWriteThereOrAboveHas) {
  for (const auto& path : {inner_, outer_}) {
    set_mode(path, 0777);
    EXPECT_EQ(told(), path + ": others may write to it (mode 0777)");
    set_mode(path, 0775);
    EXPECT_EQ(told(), "");
    EXPECT_THAT(told(S_IWGRP), HasSubstr("mode 0775"));
    set_mode(path, 0755);
  }
}

TEST_F(OtherHandTest, InAStickyFolderNobodyExchangesFiles) {
  set_mode(inner_, 01777);
  set_mode(outer_, 0777);
  EXPECT_EQ(told(), "");
}

TEST_F(OtherHandTest, WhoeverOwnsAFolderHas) {
  NEEDS_ANOTHER_USER();
  for (const auto& path : {inner_, outer_}) {
    give_away(path);
    EXPECT_EQ(told(), path + ": it belongs to user 65534");
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  }
}

TEST_F(OtherHandTest, WithoutAFolderThereIsNoAnswer) {
  EXPECT_THAT(error_of([&] { other_hand_at(outer_ + "/none/file", S_IWOTH); }),
              HasSubstr("cannot look at " + outer_ + "/none"));
}

}  // namespace
}  // namespace sentinel
