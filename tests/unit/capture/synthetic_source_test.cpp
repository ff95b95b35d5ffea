#include "capture/synthetic_source.h"

#include "contract/access_source.h"

namespace sentinel {
namespace {

struct Synthetic {
  static std::string absent() { return ""; }
  Synthetic(std::size_t, std::uint32_t window) : source_(window) {}
  AccessSource& source() { return source_; }
  std::uintptr_t page(std::size_t i) { return 0x10000000 + i * 4096; }
  void touch(std::size_t i, bool write, unsigned thread) {
    const SyntheticSource::Access access{page(i) + 123, write, thread};
    source_.play({&access, 1});
  }
  SyntheticSource source_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Synthetic, AccessSourceContract, Synthetic);

}  // namespace
}  // namespace sentinel
