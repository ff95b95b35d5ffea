// On the kernel, where it has read-write protection, and on the fake elsewhere.
#include "capture/userfault/rwp_source.h"
#include "contract/access_source.h"
#include "unit/capture/fake_rwp.h"
#include "unit/capture/fault_fixture.h"
#include "unit/capture/worker.h"

namespace sentinel {
namespace {

// Private memory whose page i is filled with mark(i).
struct Counted {
  Counted(std::size_t pages, std::uint32_t window)
      : memory_(Mapping::anonymous(pages)),
        loop_(FaultLoop::open()),
        source_(*loop_, {{.window_pages = window}}) {
    for (std::size_t i = 0; i < pages; ++i)
      std::memset(memory_.page(i), Memory::mark(i), sentinel::kPage);
    loop_->register_for_bars(memory_.address(), memory_.bytes(), false);
    loop_->set_barred_handler(&RwpSource::answer, &source_);
  }
  ~Counted() { loop_->set_barred_handler(nullptr, nullptr); }
  AccessSource& source() { return source_; }
  std::uintptr_t page(std::size_t i) { return memory_.address(i); }
  void touch(std::size_t i, bool write, unsigned thread) {
    unsigned char* const at = memory_.page(i);
    workers_[thread].post([=] {
      if (write)
        poke(at, Memory::mark(i));
      else
        EXPECT_EQ(sentinel::touch(at), Memory::mark(i));
    });
  }
  Mapping memory_;
  std::unique_ptr<FaultLoop> loop_;
  RwpSource source_;
  Worker workers_[4];
};

struct Rwp : Counted {
  static std::string absent() try {
    return FaultLoop::open()->can_bar() ? "" : "this kernel's userfaultfd has no UFFD_FEATURE_RWP";
  } catch (const Error& refused) {
    return refused.what();
  }
  using Counted::Counted;
};

struct Calls {
  FakeRwp fake_;
  OtherUffdCalls others_{fake_};
};
struct OnFake : private Calls, public Counted {
  static std::string absent() { return FakeRwp::absent(); }
  OnFake(std::size_t pages, std::uint32_t window) : Counted(pages, window) {}
};

INSTANTIATE_TYPED_TEST_SUITE_P(Rwp, AccessSourceContract, Rwp);
INSTANTIATE_TYPED_TEST_SUITE_P(FakeRwp, AccessSourceContract, OnFake);

}  // namespace
}  // namespace sentinel
