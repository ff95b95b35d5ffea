// What the kernel does to tracked memory: system calls, fork, unmapping.
#include <fcntl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cstdlib>
#include <thread>

#include "unit/capture/counting_fixture.h"

namespace sentinel {
namespace {

class UserfaultKernelTest : public CountingTest, public testing::WithParamInterface<unsigned> {
 protected:
  std::uint32_t window() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Windows, UserfaultKernelTest, testing::Values(1u, 4u, 64u, 1024u));

// An unlinked file in `directory` with page i full of mark(i + 100).
int marked_file(const char* directory, int flags, std::size_t pages) {
  std::string path = std::string(directory) + "/sentinel-test-XXXXXX";
  const int plain = mkstemp(path.data());
  if (plain < 0) return -1;
  const Mapping buffer = Mapping::anonymous(1);
  for (std::size_t i = 0; i < pages; ++i) {
    std::memset(buffer.page(0), Memory::mark(i + 100), kPage);
    if (write(plain, buffer.page(0), kPage) != static_cast<ssize_t>(kPage)) break;
  }
  fsync(plain);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | flags);
  unlink(path.c_str());
  close(plain);
  return fd;
}

TEST_P(UserfaultKernelTest, ReadIntoArmedPagesSucceedsAndCounts) {
  track(8, window());
  const int file = marked_file("/tmp", 0, 8);
  ASSERT_GE(file, 0);
  ASSERT_EQ(read(file, page(0), 8 * kPage), static_cast<ssize_t>(8 * kPage));
  close(file);
  EXPECT_EQ(drained().writes, 8u);
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(touch(memory->alias.page(i)), Memory::mark(i + 100));
}

TEST_P(UserfaultKernelTest, UnalignedWriteFromArmedPagesSucceeds) {
  track(8, window());
  const int file = marked_file("/tmp", 0, 1);
  ASSERT_GE(file, 0);
  ASSERT_EQ(pwrite(file, page(0) + 100, 6 * kPage, 0), static_cast<ssize_t>(6 * kPage));
  unsigned char byte = 0;
  ASSERT_EQ(pread(file, &byte, 1, kPage), 1);
  EXPECT_EQ(byte, Memory::mark(1));
  close(file);
  EXPECT_GE(drained().reads, 7u);
}

TEST_P(UserfaultKernelTest, DirectReadIntoArmedPagesSucceedsAndCounts) {
  track(8, window());
  const int file = marked_file("/var/tmp", O_DIRECT, 8);
  if (file < 0) GTEST_SKIP() << "no O_DIRECT in /var/tmp";
  ASSERT_EQ(pread(file, page(0), 8 * kPage, 0), static_cast<ssize_t>(8 * kPage));
  close(file);
  EXPECT_EQ(drained().writes, 8u);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(touch(page(i)), Memory::mark(i + 100));
}

TEST_P(UserfaultKernelTest, ReadingAsAnotherProcessWouldSucceedsAndCounts) {
  track(8, window());
  const Mapping buffer = Mapping::anonymous(8);
  std::memset(buffer.page(0), 0, buffer.bytes());
  const iovec to{buffer.page(0), buffer.bytes()}, from{page(0), buffer.bytes()};
  ASSERT_EQ(process_vm_readv(getpid(), &to, 1, &from, 1, 0), static_cast<ssize_t>(8 * kPage));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(touch(buffer.page(i)), Memory::mark(i));
  const PageCount count = drained();
  EXPECT_EQ(count.reads + count.writes, 8u);
}

TEST_P(UserfaultKernelTest, AChildReadsWhatIsArmedInItsParent) {
  track(16, window());
  touch(page(3));
  const pid_t child = fork();
  if (child == 0) {
    loop->abandon_in_child();
    for (std::size_t i = 0; i < 16; ++i)
      if (touch(page(i)) != Memory::mark(i)) _exit(1);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (std::size_t i = 4; i < 12; ++i) EXPECT_EQ(touch(page(i)), Memory::mark(i));
  EXPECT_EQ(drained().reads, 9u);
}

TEST_P(UserfaultKernelTest, ForkingWhileAnotherThreadFaults) {
  track(64, window());
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    for (std::size_t i = 0; !stop; ++i) touch(page(i % 64));
  });
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(touch(page(40)) == Memory::mark(40) ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  thread.join();
}

TEST_P(UserfaultKernelTest, UnmappingATrackedPartDisturbsNobody) {
  track(32, window());
  for (std::size_t i = 0; i < 16; ++i) touch(page(i));
  // A reservation takes its place, so that nothing else can be mapped where pages are still
  // tracked.
  ASSERT_NE(mmap(page(8), 8 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  for (std::size_t i = 16; i < 32; ++i) EXPECT_EQ(touch(page(i)), Memory::mark(i));
  EXPECT_EQ(drained().reads, 32u);
  const ArmRange all = range();
  EXPECT_EQ(source->disarm({&all, 1}), 0);
  EXPECT_EQ(touch(page(31)), Memory::mark(31));
}

}  // namespace
}  // namespace sentinel
