// Counting private memory where it lies, on a kernel with read-write protection that is pretended.
#include "capture/userfault/rwp_source.h"

#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <numeric>
#include <thread>
#include <vector>

#include "unit/capture/definition.h"
#include "unit/capture/fake_rwp.h"
#include "unit/capture/fault_fixture.h"

namespace sentinel {
namespace {

class RwpSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = FakeRwp::absent(); !why.empty()) GTEST_SKIP() << why;
  }
  void TearDown() override { let_go(); }

  // Page i is filled with mark(i), unless the memory is `fresh`: then nothing has touched it.
  void track(std::size_t pages, std::uint32_t window, std::uint32_t stride = 1,
             bool fresh = false) {
    prepare(pages, window, fresh);
    ASSERT_EQ(arm(0, pages, stride), 0);
  }
  void prepare(std::size_t pages, std::uint32_t window, bool fresh = false, bool populates = true) {
    let_go();
    fake = std::make_unique<FakeRwp>();
    others = std::make_unique<OtherUffdCalls>(*fake);
    memory = std::make_unique<Mapping>(Mapping::anonymous(pages));
    if (!fresh)
      for (std::size_t i = 0; i < pages; ++i) std::memset(page(i), Memory::mark(i), kPage);
    loop = FaultLoop::open();
    RwpSource::Options options;
    options.window_pages = window;
    options.seed = 42;
    options.populates = populates;
    source = std::make_unique<RwpSource>(*loop, options);
    loop->set_barred_handler(&RwpSource::answer, source.get());
    ASSERT_EQ(loop->register_for_bars(memory->address(), memory->bytes(), false), 0);
  }
  void let_go() {
    if (loop) loop->set_barred_handler(nullptr, nullptr);
    source.reset();
    if (loop && memory) loop->unregister_range(memory->address(), memory->bytes());
    loop.reset();
    memory.reset();
    others.reset();
    fake.reset();
  }
  ArmRange range(std::size_t first, std::size_t pages, std::uint32_t stride = 1) const {
    return {memory->address(first), pages * kPage, stride, 1};
  }
  int arm(std::size_t first, std::size_t pages, std::uint32_t stride = 1) {
    const ArmRange some = range(first, pages, stride);
    return source->arm({&some, 1});
  }
  int disarm(std::size_t first, std::size_t pages) {
    const ArmRange some = range(first, pages);
    return source->disarm({&some, 1});
  }
  unsigned char* page(std::size_t i) const { return memory->page(i); }
  // The sum of all tags; `answer`: what drain() says.
  PageCount drained(int answer = 0) {
    std::vector<PageCount> counts;
    EXPECT_EQ(source->drain(counts), answer);
    PageCount sum;
    for (const PageCount& count : counts) {
      sum.reads += count.reads;
      sum.writes += count.writes;
    }
    return sum;
  }
  std::uint64_t openings() {
    const PageCount count = drained();
    return count.reads + count.writes;
  }

  std::unique_ptr<FakeRwp> fake;
  std::unique_ptr<OtherUffdCalls> others;
  std::unique_ptr<Mapping> memory;
  std::unique_ptr<FaultLoop> loop;
  std::unique_ptr<RwpSource> source;
};

TEST_F(RwpSourceTest, AgreesWithTheDefinitionOnAnyOrder) {
  for (const std::uint32_t window : {1u, 4u, 63u, 64u, 100u, 1024u}) {
    track(200, window);
    const auto order = random_order(800, 200, window);
    for (const std::size_t i : order) ASSERT_EQ(touch(page(i)), Memory::mark(i));
    EXPECT_EQ(openings(), defined(order, window)) << "window " << window;
  }
}

TEST_F(RwpSourceTest, ThreadsOnDisjointPagesAreCountedExactly) {
  constexpr std::size_t kThreads = 4, kOwn = 100;
  for (const std::uint32_t window : {4u, 70u}) {
    track(kThreads * kOwn, window);
    std::uint64_t expected = 0;
    std::vector<std::thread> threads;
    std::atomic<long> wrong{0};
    for (std::size_t t = 0; t < kThreads; ++t) {
      auto order = random_order(300, kOwn, static_cast<unsigned>(t));
      expected += defined(order, window);
      threads.emplace_back([this, t, order, &wrong] {
        for (const std::size_t i : order)
          wrong += touch(page(t * kOwn + i)) != Memory::mark(t * kOwn + i);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(openings(), expected) << "window " << window;
  }
}

// Nothing is copied: what was written before, between and after is there.
TEST_F(RwpSourceTest, ContentsSurviveEveryArming) {
  track(64, 64);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < 64; ++i)
      poke(page(i) + round, static_cast<unsigned char>(i + round));
    ASSERT_EQ(arm(0, 64), 0);
  }
  for (std::size_t i = 0; i < 64; ++i)
    for (std::size_t round = 0; round < 20; ++round)
      ASSERT_EQ(touch(page(i) + round), static_cast<unsigned char>(i + round));
  EXPECT_EQ(drained().writes, 64u * 20);
}

// The kernel makes an absent page without a word, so arming makes it present.
TEST_F(RwpSourceTest, TheFirstTouchOfFreshMemoryIsCounted) {
  track(100, 1024, 1, true);
  EXPECT_EQ(fake->barred_pages(), 100u);
  for (std::size_t i = 0; i < 100; ++i) {
    if (i % 2 == 0) poke(page(i), 7);
    ASSERT_EQ(touch(page(i)), i % 2 == 0 ? 7 : 0);
  }
  const PageCount count = drained();
  EXPECT_EQ(count.writes, 50u);
  EXPECT_EQ(count.reads, 50u);
}

TEST_F(RwpSourceTest, OfASampledTensorOnlyTheTrackedPagesAreMade) {
  track(1024, 1024, 64, true);
  EXPECT_EQ(fake->barred_pages(), 16u);
  std::vector<unsigned char> present(1024);
  mincore(page(0), memory->bytes(), present.data());
  EXPECT_EQ(std::accumulate(present.begin(), present.end(), 0u), 0u);  // the barred ones are aside
  for (std::size_t i = 0; i < 1024; ++i) touch(page(i));
  EXPECT_EQ(openings(), 1024u);
}

// Neither a read into armed memory nor one of another process fails, and each page counts.
TEST_F(RwpSourceTest, AccessesInKernelModeCount) {
  track(64, 64);
  std::vector<unsigned char> bytes(8 * kPage, 3);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], bytes.data(), kPage), static_cast<ssize_t>(kPage));
  EXPECT_EQ(read(ends[0], page(5), kPage), static_cast<ssize_t>(kPage));
  EXPECT_EQ(touch(page(5) + 17), 3);
  const iovec here{bytes.data(), bytes.size()}, there{page(20), bytes.size()};
  EXPECT_EQ(process_vm_readv(getpid(), &here, 1, &there, 1, 0), static_cast<ssize_t>(8 * kPage));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(bytes[i * kPage], Memory::mark(20 + i));
  const PageCount count = drained();
  EXPECT_EQ(count.writes, 1u);
  EXPECT_EQ(count.reads, 8u);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(RwpSourceTest, UntrackedMemoryIsUnbarredABlockAtATime) {
  prepare(2048, 64);
  ASSERT_EQ(loop->bar(memory->address(), memory->bytes()), 0);
  // Blocks that lie within the mapping as a whole.
  const std::uintptr_t block = std::uintptr_t{2} << 20;
  const std::size_t first = (memory->address() + block - 1) / block * block - memory->address();
  const std::uint64_t before = loop->faults();
  for (std::size_t i = 0; i < 512; ++i)
    ASSERT_EQ(touch(page(first / kPage + i)), Memory::mark(first / kPage + i));
  EXPECT_EQ(loop->faults() - before, 1u);
  EXPECT_EQ(openings(), 0u);
}

TEST_F(RwpSourceTest, NeighboursOfTrackedPagesDoNotOpenThem) {
  prepare(512, 64);
  ASSERT_EQ(loop->bar(memory->address(), memory->bytes()), 0);
  ASSERT_EQ(arm(100, 1), 0);
  for (std::size_t i = 0; i < 512; ++i) ASSERT_EQ(touch(page(i)), Memory::mark(i));
  EXPECT_EQ(openings(), 1u);
}

TEST_F(RwpSourceTest, WhatIsDisarmedIsNotBarred) {
  track(64, 64);
  ASSERT_EQ(disarm(0, 32), 0);
  EXPECT_EQ(fake->barred_pages(), 32u);
  const std::uint64_t before = loop->faults();
  for (std::size_t i = 0; i < 32; ++i) touch(page(i));
  EXPECT_EQ(loop->faults(), before);
}

// The memory of a tensor may be given back to the system before the next one is armed there.
TEST_F(RwpSourceTest, MemoryThatWasDroppedIsCountedInItsNextLife) {
  track(16, 64);
  touch(page(3));
  ASSERT_EQ(disarm(0, 16), 0);
  ASSERT_EQ(madvise(page(0), memory->bytes(), MADV_DONTNEED), 0);
  ASSERT_EQ(arm(0, 16), 0);
  for (std::size_t i = 0; i < 16; ++i) poke(page(i), 1);
  const PageCount count = drained();
  EXPECT_EQ(count.reads, 1u);
  EXPECT_EQ(count.writes, 16u);
}

TEST_F(RwpSourceTest, WithoutItsSourceMemoryIsPlainAgain) {
  track(64, 64);
  loop->set_barred_handler(nullptr, nullptr);
  source.reset();
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(touch(page(i)), Memory::mark(i));
  ASSERT_EQ(loop->unregister_range(memory->address(), memory->bytes()), 0);
  EXPECT_EQ(fake->barred_pages(), 0u);
  const std::uint64_t before = loop->faults();
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(touch(page(i)), Memory::mark(i));
  EXPECT_EQ(loop->faults(), before);
}

// --- a kernel that refuses

TEST(RwpWithout, AKernelWithoutTheBitIsRefused) {
  if (const std::string why = FakeRwp::absent(); !why.empty()) GTEST_SKIP() << why;
  FakeRwp without(false);
  const OtherUffdCalls others(without);
  EXPECT_EQ(probe_userfaultfd().features & UFFD_FEATURE_RWP, 0u);
  const auto loop = FaultLoop::open();
  EXPECT_FALSE(loop->can_bar());
  EXPECT_THROW(RwpSource(*loop, {}), Error);
  const Mapping memory = Mapping::anonymous(1);
  EXPECT_EQ(loop->register_for_bars(memory.address(), kPage, false), -EOPNOTSUPP);
}

TEST_F(RwpSourceTest, TheBitIsAskedForAndToldAmongTheFeatures) {
  prepare(1, 64);
  EXPECT_TRUE(loop->can_bar());
  EXPECT_NE(probe_userfaultfd().features & UFFD_FEATURE_RWP, 0u);
}

TEST_F(RwpSourceTest, WhatHasAnotherModeIsLeftToIt) {
  prepare(8, 64);
  EXPECT_EQ(loop->register_range(memory->address(), memory->bytes(), true, false), -EBUSY);
  EXPECT_EQ(loop->bar(memory->address() + 8 * kPage, kPage), -ENOENT);
}

// For who fills memory, a barred page is there: it is skipped, stays barred and has its contents.
TEST_F(RwpSourceTest, ABarredPageIsNotFilled) {
  track(4, 64);
  const Mapping other = Mapping::anonymous(4);
  std::memset(other.page(0), 99, other.bytes());
  EXPECT_EQ(loop->zero(memory->address(1), kPage), 0);
  EXPECT_EQ(loop->copy(memory->address(2), other.address(), kPage), 0);
  EXPECT_EQ(fake->barred_pages(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(touch(page(i)), Memory::mark(i));
  EXPECT_EQ(openings(), 4u);
}

TEST_F(RwpSourceTest, WhatTheKernelPutsOffIsTriedAgain) {
  prepare(64, 64);
  fake->fail(UFFDIO_RWPROTECT, EAGAIN, 0, 20);
  ASSERT_EQ(arm(0, 64), 0);
  EXPECT_EQ(fake->barred_pages(), 64u);
  fake->fail(UFFDIO_RWPROTECT, EAGAIN, 3, 20);
  for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(touch(page(i)), Memory::mark(i));
  EXPECT_EQ(openings(), 64u);
}

// Another thread than the loop's may hold what the loop thread waits for.
TEST_F(RwpSourceTest, WhatIsPutOffForEverIsGivenUpByCallers) {
  prepare(8, 64);
  fake->fail(UFFDIO_RWPROTECT, EAGAIN, 0, 1u << 30);
  EXPECT_EQ(arm(0, 8), -EAGAIN);
  fake->fail_no_more();
  ASSERT_EQ(arm(0, 8), 0);
  for (std::size_t i = 0; i < 8; ++i) touch(page(i));
  EXPECT_EQ(openings(), 8u);
}

TEST_F(RwpSourceTest, ArmingSaysWhatItCouldNotBar) {
  prepare(300, 64);
  for (const int error : {EINVAL, ENOENT, EFAULT}) {
    fake->fail(UFFDIO_RWPROTECT, error, 1);  // the first one unbars
    EXPECT_EQ(arm(0, 1), -error);
  }
  ASSERT_EQ(disarm(0, 1), 0);
  for (std::size_t i = 0; i < 300; ++i) ASSERT_EQ(touch(page(i)), Memory::mark(i));
}

// Of several ranges that are barred at once, one that is not registered costs the others nothing.
TEST_F(RwpSourceTest, APartThatIsUnknownDoesNotCostTheRest) {
  for (const bool populates : {false, true}) {
    prepare(16, 1024, false, populates);
    const std::vector<ArmRange> both{range(0, 16), range(16, 4)};
    EXPECT_EQ(source->arm(both), -ENOENT);
    for (std::size_t i = 0; i < 16; ++i) touch(page(i));
    EXPECT_EQ(openings(), 16u);
  }
}

// A page that leaves the window and cannot be barred is lost to counting, and a drain tells so.
TEST_F(RwpSourceTest, AFailureInMidRunIsToldByTheNextDrain) {
  track(200, 64);
  for (std::size_t i = 0; i < 64; ++i) touch(page(i));
  EXPECT_EQ(openings(), 64u);
  // Each touch now bars the page that leaves, then unbars its own.
  fake->fail(UFFDIO_RWPROTECT, EFAULT, 0, 1);
  for (std::size_t i = 64; i < 100; ++i) ASSERT_EQ(touch(page(i)), Memory::mark(i));
  EXPECT_EQ(drained(-EFAULT).reads, 36u);
  for (std::size_t i = 0; i < 36; ++i) ASSERT_EQ(touch(page(i)), Memory::mark(i));
  EXPECT_EQ(drained().reads, 35u);  // but for the one that stayed open
}

// A page that cannot be unbarred at first is touched again, and again, until it can.
TEST_F(RwpSourceTest, WhoeverTouchesGoesOnOnceThePageCanBeUnbarred) {
  track(4, 64);
  fake->fail(UFFDIO_RWPROTECT, EFAULT, 0, 5);
  EXPECT_EQ(touch(page(2)), Memory::mark(2));
  EXPECT_EQ(openings(), 1u);
}

// --- fork

TEST_F(RwpSourceTest, AChildHasACopyThatIsNotBarredAndTheParentGoesOnCounting) {
  track(32, 1024);
  for (std::size_t i = 0; i < 8; ++i) poke(page(i), 100);
  const pid_t child = fork();
  if (child == 0) {
    loop->abandon_in_child();
    bool same = true;
    for (std::size_t i = 0; i < 32; ++i) same &= *page(i) == (i < 8 ? 100 : Memory::mark(i));
    for (std::size_t i = 0; i < 32; ++i) *page(i) = 55;
    _exit(same ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(touch(page(i)), i < 8 ? 100 : Memory::mark(i));
  const PageCount count = drained();
  EXPECT_EQ(count.writes, 8u);
  EXPECT_EQ(count.reads, 24u);
}

TEST_F(RwpSourceTest, PagesSharedWithAChildAreCountedAgain) {
  track(32, 64);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    loop->abandon_in_child();
    close(ends[1]);
    char end = 0;
    const ssize_t got = read(ends[0], &end, 1);  // as long as the parent counts
    _exit(got == 0 ? 0 : 1);
  }
  close(ends[0]);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(arm(0, 32), 0);
    for (std::size_t i = 0; i < 32; ++i) ASSERT_EQ(touch(page(i)), Memory::mark(i));
  }
  EXPECT_EQ(drained().reads, 3u * 32);
  close(ends[1]);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sentinel
