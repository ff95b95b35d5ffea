// Memory mode: fast memory as a hardware-managed cache of a byte-addressable slow tier, invisible
// to software, as DRAM in front of Optane DC persistent memory (Izraelevitz et al., "Basic
// Performance Measurements of the Intel Optane DC Persistent Memory Module", arXiv:1903.05714,
// section 2; Hildebrand et al., AutoTM, ASPLOS 2020, compare with it as "2LM").
//
// Modelled in sim/cache_run.h: direct-mapped by address, write-back, filled on reads and writes; a
// miss costs the slow tier's latency and bandwidth as the trace's counts say; dirty lines that are
// replaced are written. Capacity is the slow tier's alone. Left out: conflicts among the tensors of
// one op with each other beyond one pass over each, metadata traffic, channel interleaving. There
// is nothing to decide, hence no pager.
#include "sentinel/paging.h"

namespace sentinel::plan {
namespace {

class MemoryMode final : public PagedPolicy {
 public:
  std::string_view name() const override { return "memory-mode"; }
  Mechanism mechanism() const override { return Mechanism::hardware_cache; }
  std::unique_ptr<Pager> prepare(const Machine&, const PlanOptions& options) override {
    check_features(*this, options);
    return nullptr;
  }
};

}  // namespace

std::unique_ptr<Policy> make_memory_mode() { return std::make_unique<MemoryMode>(); }

}  // namespace sentinel::plan
