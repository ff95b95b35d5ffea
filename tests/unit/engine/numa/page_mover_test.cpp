// What the real kernel answers where a page cannot move, between two nodes (kernel/lab.sh makes a
// machine that has them): no pretended answers, as in numa_engine_test.cpp.
#include "engine/numa/page_mover.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "base/units.h"
#include "engine/host/topology.h"

namespace sentinel {
namespace {

constexpr std::size_t kPage = 4096, kPages = 8;
constexpr int kFrom = 0, kTo = 1;

class PageMoverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::size_t with_memory = 0;
    for (const auto& node : numa_nodes()) with_memory += node.bytes != 0;
    if (with_memory < 2) GTEST_SKIP() << "this machine has one NUMA node with memory";
    void* at =
        mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    memory = static_cast<char*>(at);
    madvise(memory, kPages * kPage, MADV_NOHUGEPAGE);
    ASSERT_EQ(calls->bind(memory, kPages * kPage, kFrom), 0);
    for (std::size_t i = 0; i < kPages; ++i) std::memset(page(i), static_cast<int>(i + 1), kPage);
    ASSERT_EQ(node_of(0), kFrom);
  }
  void TearDown() override {
    for (std::size_t i = 0; memory != nullptr && i < kPages; ++i)
      for (std::size_t at = 0; at < kPage; ++at) ASSERT_EQ(page(i)[at], static_cast<char>(i + 1));
    if (memory != nullptr) munmap(memory, kPages * kPage);
  }

  char* page(std::size_t i) const { return memory + i * kPage; }
  int node_of(std::size_t i) {
    void* const at = page(i);
    int status = -EINVAL;
    calls->where({&at, 1}, {&status, 1});
    return status;
  }
  // All pages, in one call.
  std::vector<Moved> move() {
    std::vector<std::uintptr_t> granules;
    for (std::size_t i = 0; i < kPages; ++i)
      granules.push_back(reinterpret_cast<std::uintptr_t>(page(i)));
    std::vector<Moved> moved(kPages);
    mover.move(granules, kTo, moved);
    return moved;
  }
  EngineCounters counters() {
    EngineCounters counters;
    mover.add_to(counters);
    return counters;
  }
  std::uint64_t cause(MoveCause cause) {
    return counters().causes[static_cast<std::size_t>(cause)];
  }

  std::unique_ptr<NodeCalls> calls = make_node_calls();
  PageMover mover{*calls, kPage};
  char* memory = nullptr;
};

TEST_F(PageMoverTest, MovesWhatItMay) {
  for (const auto& moved : move()) {
    EXPECT_EQ(moved.bytes, kPage);
    EXPECT_EQ(moved.left, 0u);
  }
  EXPECT_EQ(node_of(kPages - 1), kTo);
  EXPECT_EQ(counters().causes, decltype(EngineCounters::causes){});
}

// EACCES is asked once: the child may live as long as it likes.
TEST_F(PageMoverTest, PagesSharedWithAChildStay) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  std::memset(page(3), 4, kPage);  // its own again
  const auto moved = move();
  for (std::size_t i = 0; i < kPages; ++i) {
    EXPECT_EQ(moved[i].bytes, i == 3 ? kPage : 0) << i;
    EXPECT_EQ(moved[i].left, i == 3 ? 0 : kPage) << i;
    EXPECT_EQ(node_of(i), i == 3 ? kTo : kFrom) << i;
  }
  EXPECT_EQ(cause(MoveCause::eacces), kPages - 1);
  EXPECT_EQ(counters().pages_left, kPages - 1);

  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  move();
  for (std::size_t i = 0; i < kPages; ++i) EXPECT_EQ(node_of(i), kTo) << i;
  EXPECT_EQ(counters().pages_left, kPages - 1);  // none was left this time
}

// A page in a pipe (vmsplice) is held by the kernel, as one under I/O is: EBUSY, tried again a few
// times. Its neighbours in the call move.
TEST_F(PageMoverTest, APinnedPageStaysUntilItIsLetGo) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const iovec part{.iov_base = page(5), .iov_len = kPage};
  ASSERT_EQ(vmsplice(ends[1], &part, 1, 0), static_cast<ssize_t>(kPage));
  const auto moved = move();
  for (std::size_t i = 0; i < kPages; ++i) EXPECT_EQ(node_of(i), i == 5 ? kFrom : kTo) << i;
  EXPECT_EQ(moved[5].bytes, 0u);
  EXPECT_EQ(moved[5].left, kPage);
  EXPECT_EQ(moved[4].bytes, kPage);
  EXPECT_GE(cause(MoveCause::ebusy), 2u);
  EXPECT_EQ(counters().pages_left, 1u);

  char drained[kPage];
  ASSERT_EQ(read(ends[0], drained, kPage), static_cast<ssize_t>(kPage));
  move();
  EXPECT_EQ(node_of(5), kTo);
  EXPECT_EQ(counters().pages_left, 1u);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(PageMoverTest, WhatNobodyTouchedCountsForNeither) {
  ASSERT_EQ(calls->drop(page(2), kPage), 0);
  const auto moved = move();
  EXPECT_EQ(moved[2].bytes + moved[2].left, 0u);
  EXPECT_EQ(counters().pages_left, 0u);
  std::memset(page(2), 3, kPage);
}

}  // namespace
}  // namespace sentinel
