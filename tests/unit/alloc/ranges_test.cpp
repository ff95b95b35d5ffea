#include "alloc/ranges.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/units.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

char* bytes_at(std::uintptr_t address) { return reinterpret_cast<char*>(address); }

TEST(RangesTest, ReservesAlignedAddressesWithoutMemory) {
  constexpr std::size_t kBytes = 1_GiB;
  const auto begin = reserve_anonymous(kBytes, 2_MiB);
  EXPECT_EQ(begin % 2_MiB, 0u);
  std::vector<unsigned char> resident(kBytes / 4096);
  ASSERT_EQ(mincore(bytes_at(begin), kBytes, resident.data()), 0);
  EXPECT_THAT(resident, ::testing::Each(0));
  bytes_at(begin)[0] = 1;
  bytes_at(begin)[kBytes - 1] = 2;
  EXPECT_EQ(bytes_at(begin)[kBytes - 1], 2);
  EXPECT_EQ(munmap(bytes_at(begin), kBytes), 0);
}

TEST(RangesTest, GivesTheEndsBackThatAlignmentNeeded) {
  const auto begin = reserve_anonymous(2_MiB, 1_GiB);
  EXPECT_EQ(begin % 1_GiB, 0u);
  unsigned char resident = 0;
  EXPECT_EQ(mincore(bytes_at(begin + 2_MiB), 4096, &resident), -1);  // not mapped
  EXPECT_EQ(errno, ENOMEM);
  munmap(bytes_at(begin), 2_MiB);
}

TEST(RangesTest, TwoMappingsOfOneFileShowTheSameBytes) {
  const int fd = create_memory_file("ranges-test", 4_MiB);
  const auto first = map_shared(fd, 4_MiB, 2_MiB), second = map_shared(fd, 4_MiB, 2_MiB);
  EXPECT_NE(first, second);
  EXPECT_EQ(second % 2_MiB, 0u);
  std::strcpy(bytes_at(first + 3_MiB), "the same");
  EXPECT_STREQ(bytes_at(second + 3_MiB), "the same");
  munmap(bytes_at(first), 4_MiB);
  munmap(bytes_at(second), 4_MiB);
  close(fd);
}

TEST(RangesTest, AMemoryFileIsSizedEmptyAndClosedOnExec) {
  const int fd = create_memory_file("ranges-test", 64_MiB);
  struct stat info {};
  ASSERT_EQ(fstat(fd, &info), 0);
  EXPECT_EQ(info.st_size, static_cast<off_t>(64_MiB));
  EXPECT_EQ(info.st_blocks, 0);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  close(fd);
}

TEST(RangesTest, SaysHowMuchCouldNotBeReserved) {
  try {
    reserve_anonymous(1ull << 60, 2_MiB);
    FAIL() << "2^60 bytes were reserved";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ENOMEM);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("address space"));
  }
}

}  // namespace
}  // namespace sentinel
