#include "base/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <fstream>

#include "folder.h"

namespace sentinel {
namespace {

class OurFileTest : public ::testing::Test {
 protected:
  int open_file(const std::string& name) {
    std::ofstream(folder_ / name) << "theirs";
    return open((folder_ / name).c_str(), O_RDWR | O_CLOEXEC);
  }
  Folder folder_;
};

TEST_F(OurFileTest, ANumberIsOursUntilItIsClosed) {
  OurFile file(open_file("a"));
  EXPECT_TRUE(file.is_open() && file.is_ours());
  close(file.number());
  EXPECT_FALSE(file.is_ours());
  EXPECT_EQ(errno, EBADF);
  EXPECT_TRUE(file.is_open());
}

TEST_F(OurFileTest, WhatTheProgramOpensUnderTheNumberIsNotOursToClose) {
  for (const int number : {open_file("a"), eventfd(0, EFD_CLOEXEC)}) {
    OurFile ours(number);
    const int theirs = open_file("b");
    ASSERT_EQ(dup2(theirs, number), number);
    EXPECT_FALSE(ours.is_ours());
    ours.close();
    EXPECT_FALSE(ours.is_open());
    EXPECT_EQ(fcntl(number, F_GETFD), 0) << "still open";
    close(number);
    close(theirs);
  }
}

TEST_F(OurFileTest, ACopyMeansTheSameNumber) {
  OurFile first(open_file("a"));
  OurFile second = first;
  second.close();
  EXPECT_FALSE(first.is_ours());
  EXPECT_FALSE(OurFile().is_open());
}

}  // namespace
}  // namespace sentinel
