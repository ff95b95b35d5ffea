#include "capture/userfault/page_unmapper.h"
#include "unit/capture/fault_fixture.h"

namespace sentinel {
namespace {

// Pages of the mapping that are in the page table, by the default handler's count of faults.
using ZapperTest = FaultTest;

TEST_F(ZapperTest, TakesOutExactlyTheRangesGiven) {
  Memory memory(1024);
  ASSERT_EQ(loop->register_range(memory.mapping.address(), memory.mapping.bytes(), false, true), 0);
  ASSERT_EQ(loop->cont(memory.mapping.address(), memory.mapping.bytes()), 0);
  PageUnmapper page_unmapper;
  EXPECT_TRUE(page_unmapper.empty());
  for (std::size_t i = 0; i < 1024; i += 2) page_unmapper.add(memory.mapping.address(i), kPage);
  EXPECT_EQ(page_unmapper.flush(), 0);
  EXPECT_TRUE(page_unmapper.empty());
  for (std::size_t i = 0; i < 1024; ++i) EXPECT_EQ(touch(memory.mapping.page(i)), Memory::mark(i));
  EXPECT_EQ(loop->faults(), 512u);
}

TEST_F(ZapperTest, GoesOnAfterARangeThatIsNotMapped) {
  Memory memory(8);
  ASSERT_EQ(loop->register_range(memory.mapping.address(), memory.mapping.bytes(), false, true), 0);
  ASSERT_EQ(loop->cont(memory.mapping.address(), memory.mapping.bytes()), 0);
  // A hole among the pages would soon be other memory's.
  constexpr std::uintptr_t kNeverMapped = 16 * kPage;
  PageUnmapper page_unmapper;
  page_unmapper.add(memory.mapping.address(0), kPage);
  page_unmapper.add(kNeverMapped, kPage);
  for (const std::size_t i : {4, 6}) page_unmapper.add(memory.mapping.address(i), kPage);
  EXPECT_EQ(page_unmapper.flush(), -ENOMEM);
  for (const std::size_t i : {0, 4, 6}) EXPECT_EQ(touch(memory.mapping.page(i)), Memory::mark(i));
  EXPECT_EQ(loop->faults(), 3u);
}

}  // namespace
}  // namespace sentinel
