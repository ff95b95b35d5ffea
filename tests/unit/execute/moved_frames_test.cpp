#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "alloc/ranges.h"
#include "execute/backing.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr std::size_t kPage = 4096;

class MovedFramesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      loop = FaultLoop::open();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    if (!loop->can_move()) GTEST_SKIP() << "this kernel has no UFFDIO_MOVE";
    arena = reserve_anonymous(2 * kGranule, kGranule);
    ASSERT_EQ(loop->register_range(arena, 2 * kGranule, true, false), 0);
    frames = make_moved_frames(*loop, arena, 2 * kGranule);
  }
  void TearDown() override {
    frames.reset();
    if (arena != 0) munmap(reinterpret_cast<void*>(arena), 2 * kGranule);
  }
  unsigned char* byte(std::uint64_t at) { return reinterpret_cast<unsigned char*>(arena + at); }

  std::unique_ptr<FaultLoop> loop;
  std::uintptr_t arena = 0;
  std::unique_ptr<Backing> frames;
};

// A page in a pipe (vmsplice) is held by the kernel, as one under I/O is.
TEST_F(MovedFramesTest, WhatStaysBusyIsCopiedIntoItsPlace) {
  const Token token = frames->create();
  ASSERT_GE(token, 0);
  auto* buffer = static_cast<unsigned char*>(frames->buffer(0, token));
  madvise(buffer, kGranule, MADV_NOHUGEPAGE);
  for (std::size_t i = 0; i < kGranule; i += kPage) std::memset(buffer + i, i / kPage % 251, kPage);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const iovec part{.iov_base = buffer + 100 * kPage, .iov_len = kPage};
  ASSERT_EQ(vmsplice(ends[1], &part, 1, 0), static_cast<ssize_t>(kPage));

  EXPECT_EQ(frames->install(0, token), 0);
  for (std::size_t i = 0; i < kGranule; i += kPage) ASSERT_EQ(*byte(i), i / kPage % 251) << i;

  char drained[kPage];
  ASSERT_EQ(read(ends[0], drained, kPage), static_cast<ssize_t>(kPage));
  close(ends[0]);
  close(ends[1]);
  // Nothing is left behind where the frame was: the block leaves and returns through the same
  // place.
  Token again = kNoToken;
  ASSERT_EQ(frames->take(0, again), 0);
  ASSERT_EQ(frames->install(1, again), 0);
  for (std::size_t i = 0; i < kGranule; i += kPage)
    ASSERT_EQ(*byte(kGranule + i), i / kPage % 251) << i;
}

}  // namespace
}  // namespace sentinel
