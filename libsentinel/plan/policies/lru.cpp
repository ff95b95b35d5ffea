// Unified memory on demand: the baseline "Base UVM" of G10 (MICRO 2023, section 6.1) and "UM" of
// DeepUM (ASPLOS 2023, section 2.3), after the fault handler of NVIDIA's driver.
//
// Modelled: every block that a kernel names and that is absent faults; where no memory is free the
// block unused for the longest is evicted first, on the critical path; then the faulted pages are
// populated or fetched. The driver knows neither tensors nor the framework's allocator: what is
// dead is written out like anything else, and fetched again when its addresses are used again.
// Blocks that the running kernel names are evicted only when nothing else is left.
// Left out: the driver's real order is by last migration, since the hardware does not report uses;
// order of use is what G10 gives its baseline, and never the worse of the two here. Not modelled
// either: the driver's density prefetcher, read duplication, access counters, cudaMemAdvise.
#include "plan/seam/victims.h"
#include "sentinel/paging.h"

namespace sentinel::plan {
namespace {

class LruPager final : public Pager {
 public:
  void kernel_start(std::uint64_t) override {}
  void kernel_end() override { blocks_.end_use(); }
  void touched(BlockId b) override {
    blocks_.renew(b);
    blocks_.use(b);
  }
  void arrived(BlockId b) override { blocks_.arrive(b); }
  void left(BlockId b) override { blocks_.leave(b); }
  std::optional<BlockId> victim(bool) override {
    const auto oldest = blocks_.take();
    return oldest ? oldest : blocks_.take_used();
  }

 private:
  Victims blocks_;
};

class Lru final : public PagedPolicy {
 public:
  std::string_view name() const override { return "lru"; }
  std::unique_ptr<Pager> prepare(const Machine&, const PlanOptions& options) override {
    check_features(*this, options);
    return std::make_unique<LruPager>();
  }
};

}  // namespace

std::unique_ptr<Policy> make_lru() { return std::make_unique<Lru>(); }

}  // namespace sentinel::plan
