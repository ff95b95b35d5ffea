// Makes and frees the index's leaves, and finds runs of pages that it does not know.
#include "capture/page_index.h"

#include <algorithm>

namespace sentinel {

PageIndex::~PageIndex() {
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (leaves_[i]) munmap(leaves_[i], kLeafBytes);
}

int PageIndex::prepare(std::uintptr_t begin, std::uintptr_t end) noexcept {
  if (end <= begin) return 0;
  const std::uintptr_t last = ((end - 1) / kPage) >> kLeafBits;
  if (last >= leaves_.size()) return -EFAULT;
  for (std::uintptr_t leaf = (begin / kPage) >> kLeafBits; leaf <= last; ++leaf) {
    if (leaves_[leaf]) continue;
    void* const at = mmap(nullptr, kLeafBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return -ENOMEM;
    leaves_[leaf] = static_cast<PageRecord*>(at);
  }
  return 0;
}

std::size_t PageIndex::untracked_run(std::uintptr_t address, std::size_t most) noexcept {
  std::size_t run = 0;
  while (run < most) {
    const PageRecord* const record = find(address + run * kPage);
    if (record && record->tracked()) break;
    ++run;
  }
  return run;
}

void PageIndex::forget(std::uintptr_t begin, std::uintptr_t end) noexcept {
  for (std::uintptr_t page = begin; page < end; page += kPage)
    if (PageRecord* const record = find(page)) *record = PageRecord{};
}

}  // namespace sentinel
