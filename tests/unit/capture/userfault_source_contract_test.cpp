#include "capture/userfault/userfault_source.h"
#include "contract/access_source.h"
#include "unit/capture/fault_fixture.h"
#include "unit/capture/worker.h"

namespace sentinel {
namespace {

struct Userfault {
  static std::string absent() try {
    return FaultLoop::open()->can_count() ? "" : "this kernel has no MINOR faults on shared memory";
  } catch (const Error& refused) {
    return refused.what();
  }
  Userfault(std::size_t pages, std::uint32_t window)
      : memory_(pages), loop_(FaultLoop::open()), source_(*loop_, {.window_pages = window}) {
    loop_->register_range(memory_.mapping.address(), memory_.mapping.bytes(), false, true);
    loop_->set_minor_handler(&UserfaultSource::answer, &source_);
  }
  ~Userfault() { loop_->set_minor_handler(nullptr, nullptr); }
  AccessSource& source() { return source_; }
  std::uintptr_t page(std::size_t i) { return memory_.mapping.address(i); }
  void touch(std::size_t i, bool write, unsigned thread) {
    unsigned char* const at = memory_.mapping.page(i);
    workers_[thread].post([=] {
      if (write)
        poke(at, Memory::mark(i));
      else
        EXPECT_EQ(sentinel::touch(at), Memory::mark(i));
    });
  }
  Memory memory_;
  std::unique_ptr<FaultLoop> loop_;
  UserfaultSource source_;
  Worker workers_[4];
};

INSTANTIATE_TYPED_TEST_SUITE_P(Userfault, AccessSourceContract, Userfault);

}  // namespace
}  // namespace sentinel
