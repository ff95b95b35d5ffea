// A userfault source over a memfd, armed as a whole.
#pragma once

#include <vector>

#include "capture/userfault/userfault_source.h"
#include "unit/capture/fault_fixture.h"

namespace sentinel {

class CountingTest : public FaultTest {
 protected:
  void track(std::size_t pages, std::uint32_t window, std::uint32_t stride = 1) {
    let_go();
    memory = std::make_unique<Memory>(pages);
    source = std::make_unique<UserfaultSource>(
        *loop, UserfaultSource::Options{.window_pages = window, .seed = 42});
    loop->set_minor_handler(&UserfaultSource::answer, source.get());
    ASSERT_EQ(loop->register_range(memory->mapping.address(), memory->mapping.bytes(), false, true),
              0);
    const ArmRange all = range(stride);
    ASSERT_EQ(source->arm({&all, 1}), 0);
  }
  ArmRange range(std::uint32_t stride = 1) const {
    return {memory->mapping.address(), memory->mapping.bytes(), stride, 1};
  }
  void TearDown() override { let_go(); }
  void let_go() {
    if (loop) loop->set_minor_handler(nullptr, nullptr);
    source.reset();
    memory.reset();
  }
  unsigned char* page(std::size_t i) const { return memory->mapping.page(i); }
  PageCount drained() {
    std::vector<PageCount> counts;
    EXPECT_EQ(source->drain(counts), 0);
    PageCount sum;
    for (const PageCount& count : counts) {
      sum.reads += count.reads;
      sum.writes += count.writes;
    }
    return sum;
  }
  std::unique_ptr<Memory> memory;
  std::unique_ptr<UserfaultSource> source;
};

}  // namespace sentinel
