// Windows so small that one instruction needs more pages than they hold.
#include <signal.h>

#include <thread>

#include "unit/capture/counting_fixture.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace sentinel {
namespace {

using UserfaultInstructionTest = CountingTest;

std::uint64_t load8(const unsigned char* at) {
  std::uint64_t value;
  asm volatile("movq (%1), %0" : "=r"(value) : "r"(at) : "memory");
  return value;
}

// Same instruction, alternating pages: each iteration is an instruction of its own.
TEST_F(UserfaultInstructionTest, ALoopOverTwoPagesOpensOneEachTime) {
  track(2, 1);
  for (std::size_t i = 0; i < 200; ++i) ASSERT_EQ(touch(page(i % 2)), Memory::mark(i % 2));
  EXPECT_EQ(drained().reads, 200u);
}

TEST_F(UserfaultInstructionTest, APageCrossingLoadOpensBothPagesOnce) {
  track(8, 1);
  const std::uint64_t value = load8(page(1) - 4);
  EXPECT_EQ(value & 0xff, Memory::mark(0));
  EXPECT_EQ(value >> 56, Memory::mark(1));
  EXPECT_EQ(drained().reads, 2u);
  // Page 1 is the one that the window still holds.
  touch(page(1));
  EXPECT_EQ(drained().reads, 0u);
  touch(page(0));
  EXPECT_EQ(drained().reads, 1u);
}

// The page before is open and in the window when the load displaces it and needs it at once.
TEST_F(UserfaultInstructionTest, APageThatIsOpenAlreadyStaysSoUntilTheInstructionRetires) {
  track(9, 1);
  std::uint64_t expected = 1;
  touch(page(0));
  for (std::size_t i = 1; i < 9; ++i, ++expected) load8(page(i) - 4);
  EXPECT_EQ(drained().reads, expected);
}

TEST_F(UserfaultInstructionTest, PageCrossingLoadsInALoopMakeProgress) {
  track(64, 1);
  for (int round = 0; round < 3; ++round)
    for (std::size_t i = 1; i < 64; i += 2) load8(page(i) - 4);
  EXPECT_EQ(drained().reads, 3u * 64);
}

TEST_F(UserfaultInstructionTest, AStoreThatCrossesIsTwoWrites) {
  track(4, 1);
  asm volatile("movq %0, (%1)" ::"r"(std::uint64_t{0x1122334455667788}), "r"(page(2) - 4)
               : "memory");
  EXPECT_EQ(drained().writes, 2u);
  EXPECT_EQ(load8(page(2) - 4), 0x1122334455667788u);
}

__attribute__((target("avx2"))) void gather(const void* base, const std::int32_t (&offsets)[8],
                                            std::int32_t (&values)[8]) {
  const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(offsets));
  const __m256i got = _mm256_i32gather_epi32(static_cast<const int*>(base), at, 1);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(values), got);
}

TEST_F(UserfaultInstructionTest, AGatherOpensEachOfItsPagesOnce) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this processor has no AVX2";
  for (const std::uint32_t window : {1u, 4u, 63u}) {
    track(32, window);
    std::int32_t offsets[8], values[8];
    for (int i = 0; i < 8; ++i) offsets[i] = (3 * i + 2) * static_cast<int>(kPage) + 100;
    gather(page(0), offsets, values);
    for (std::size_t i = 0; i < 8; ++i)
      EXPECT_EQ(static_cast<unsigned char>(values[i]), Memory::mark(3 * i + 2));
    EXPECT_EQ(drained().reads, 8u) << "window " << window;
  }
}

// Every iteration needs a page that the window has no room for.
TEST_F(UserfaultInstructionTest, AStringInstructionGoesOn) {
  track(8, 1);
  const unsigned char* from = page(1) - 50;
  unsigned char* to = page(5) - 20;
  std::size_t bytes = 100;
  asm volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(bytes)::"memory");
  EXPECT_EQ(touch(memory->alias.page(5) - 20), Memory::mark(0));
  EXPECT_EQ(touch(memory->alias.page(5) + 79), Memory::mark(1));
  const PageCount count = drained();
  EXPECT_GE(count.reads + count.writes, 4u);
}

TEST_F(UserfaultInstructionTest, ThreadsStepAtTheSameTime) {
  track(64, 1);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([this, t] {
      for (std::size_t round = 0; round < 50; ++round)
        for (std::size_t i = 1; i < 16; i += 2) load8(page(t * 16 + i) - 4);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(drained().reads, 4u * 50 * 16);
}

TEST_F(UserfaultInstructionTest, AThreadThatBlocksTheTrapGoesOn) {
  track(8, 1);
  std::thread thread([this] {
    sigset_t trap;
    sigemptyset(&trap);
    sigaddset(&trap, SIGTRAP);
    pthread_sigmask(SIG_BLOCK, &trap, nullptr);
    for (int round = 0; round < 10; ++round)
      for (std::size_t i = 1; i < 8; i += 2) load8(page(i) - 4);
  });
  thread.join();
  EXPECT_GE(drained().reads, 8u);
}

volatile sig_atomic_t foreign_traps = 0;

TEST_F(UserfaultInstructionTest, TrapsOfOthersReachTheirHandler) {
  struct sigaction mine {
  }, before;
  mine.sa_handler = [](int) { foreign_traps = foreign_traps + 1; };
  ASSERT_EQ(sigaction(SIGTRAP, &mine, &before), 0);
  track(4, 1);
  for (std::size_t i = 0; i < 8; ++i) touch(page(i % 4));
  raise(SIGTRAP);
  asm volatile("int3");
  EXPECT_EQ(foreign_traps, 2);
  EXPECT_EQ(drained().reads, 8u);
  let_go();
  raise(SIGTRAP);
  EXPECT_EQ(foreign_traps, 3);
  sigaction(SIGTRAP, &before, nullptr);
}

TEST_F(UserfaultInstructionTest, OnlyOneSmallWindowAtATime) {
  track(2, 1);
  EXPECT_THROW(UserfaultSource(*loop, {.window_pages = 63}), Error);
  EXPECT_NO_THROW(UserfaultSource(*loop, {.window_pages = 64}));
}

}  // namespace
}  // namespace sentinel
#endif
