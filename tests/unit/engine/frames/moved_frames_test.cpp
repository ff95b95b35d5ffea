#include <liburing.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "alloc/ranges.h"
#include "engine/frames/backing.h"
#include "unit/capture/fault_fixture.h"

namespace sentinel {
namespace {

class MovedFramesTest : public FaultTest {
 protected:
  void SetUp() override {
    FaultTest::SetUp();
    if (IsSkipped()) return;
    if (!loop->can_move()) GTEST_SKIP() << "this kernel has no UFFDIO_MOVE";
    arena = reserve_anonymous(2 * kGranule, kGranule);
    ASSERT_EQ(loop->register_range(arena, 2 * kGranule, true, false), 0);
    frames = make_moved_frames(*loop, arena, 2 * kGranule);
    if (io_uring_queue_init(1, &ring, 0) != 0) GTEST_SKIP() << "io_uring is refused here";
    has_ring = true;
    token = frames->create();
    ASSERT_GE(token, 0);
    auto* buffer = static_cast<unsigned char*>(frames->buffer(0, token));
    // Of small pages: Linux 6.12 tries for ever to split a large folio of which a page is pinned.
    madvise(buffer, kGranule, MADV_NOHUGEPAGE);
    ASSERT_EQ(madvise(buffer, kGranule, MADV_DONTNEED), 0);
    for (std::size_t i = 0; i < kGranule; i += kPage) std::memset(buffer + i, mark(i), kPage);
  }
  void TearDown() override {
    frames.reset();
    if (has_ring) io_uring_queue_exit(&ring);
    if (arena != 0) munmap(reinterpret_cast<void*>(arena), 2 * kGranule);
  }
  static int mark(std::size_t at) { return static_cast<int>(at / kPage % 251); }
  unsigned char* block(std::uint64_t n) {
    return reinterpret_cast<unsigned char*>(arena + n * kGranule);
  }
  void expect_whole(std::uint64_t n) {
    for (std::size_t i = 0; i < kGranule; i += kPage) ASSERT_EQ(touch(block(n) + i), mark(i)) << i;
  }
  // A buffer registered with io_uring is pinned, as one under direct I/O is.
  void pin(void* page) {
    const iovec part{.iov_base = page, .iov_len = kPage};
    ASSERT_EQ(io_uring_register_buffers(&ring, &part, 1), 0);
  }
  // The kernel may let go of it a moment later.
  int take_unpinned(std::uint32_t n) {
    EXPECT_EQ(io_uring_unregister_buffers(&ring), 0);
    int code = -EBUSY;
    for (int i = 0; i < 1000 && code == -EBUSY; ++i) {
      code = frames->take(n, token);
      if (code == -EBUSY) usleep(1000);
    }
    return code;
  }

  std::uintptr_t arena = 0;
  std::unique_ptr<Backing> frames;
  Token token = kNoToken;
  io_uring ring{};
  bool has_ring = false;
};

TEST_F(MovedFramesTest, WhatStaysPinnedIsCopiedIntoItsPlace) {
  auto* page = static_cast<unsigned char*>(frames->buffer(0, token)) + 100 * kPage;
  pin(page);
  std::size_t moved = 0;
  auto* elsewhere = block(1) + 100 * kPage;
  ASSERT_EQ(loop->move(reinterpret_cast<std::uintptr_t>(elsewhere),
                       reinterpret_cast<std::uintptr_t>(page), kPage, &moved),
            -EBUSY);
  EXPECT_EQ(frames->install(0, token), 0);
  expect_whole(0);
  // Nothing is left behind where the frame was: the block leaves and returns through that place.
  ASSERT_EQ(take_unpinned(0), 0);
  ASSERT_EQ(frames->install(1, token), 0);
  expect_whole(1);
}

TEST_F(MovedFramesTest, APinnedBlockStaysWhole) {
  ASSERT_EQ(frames->install(0, token), 0);
  pin(block(0) + 100 * kPage);
  EXPECT_EQ(frames->take(0, token), -EBUSY);
  expect_whole(0);
  ASSERT_EQ(take_unpinned(0), 0);
  ASSERT_EQ(frames->install(1, token), 0);
  expect_whole(1);
}

// A fork between the making of a frame's pages and their move makes them shared.
TEST_F(MovedFramesTest, FramesAreMadeWhileTheProcessForks) {
  std::atomic<bool> over = false;
  std::atomic<int> forks = 0;
  std::thread forking([&] {
    while (!over) {
      const pid_t child = fork();
      if (child == 0) _exit(0);
      if (child > 0) waitpid(child, nullptr, 0), ++forks;
    }
  });
  while (forks == 0) std::this_thread::yield();
  for (int i = 0; i < 300; ++i) {
    const auto made = frames->create();
    EXPECT_GE(made, 0) << std::strerror(static_cast<int>(-made));
    if (made < 0) break;
    frames->destroy(made);
  }
  over = true;
  forking.join();
}

}  // namespace
}  // namespace sentinel
