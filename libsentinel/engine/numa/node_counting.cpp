// Counting through page faults needs shared memory, moving private memory: the arena's mapping is
// exchanged at the same addresses while other threads may use it, as in frame_counting.cpp. Here
// nothing is absent, so whoever touches a page that is under way waits for it and no longer.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "alloc/ranges.h"
#include "base/units.h"
#include "engine/numa/node_engine.h"
#include "sentinel/error.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace sentinel {
namespace {

int move_tables(std::uintptr_t from, std::uintptr_t to, std::uint64_t bytes, int flags) {
  const void* at = mremap(reinterpret_cast<void*>(from), bytes, bytes,
                          MREMAP_MAYMOVE | MREMAP_FIXED | flags, reinterpret_cast<void*>(to));
  return at != MAP_FAILED ? 0 : -errno;
}

}  // namespace

// Ranges whose policy comes to be the same are merged by the kernel only if they have had their
// first page in common: the last one, which is never handed out.
std::uintptr_t NodeEngine::map_private() const {
  const auto begin = reserve_anonymous(mapped_bytes_, kGranule);
  auto* const memory = reinterpret_cast<void*>(begin);
  if (granule_ < kGranule) madvise(memory, mapped_bytes_, MADV_NOHUGEPAGE);
  if (const int code = calls_->bind(memory, mapped_bytes_, nodes_.slow); code != 0) {
    munmap(memory, mapped_bytes_);
    throw Error("could not place the arena in a NUMA node", -code);
  }
  *reinterpret_cast<volatile char*>(begin + arena_bytes_) = 1;
  return begin;
}

void NodeEngine::count_with(CountFault count, void* source) noexcept {
  if (!loop_) return;
  count_fault_ = nullptr;
  loop_->set_minor_handler(&NodeEngine::on_minor, this);  // waits for the former one
  count_source_ = source;
  count_fault_ = count;
}

// A huge page moves as one, its 512 parts one by one. Where the kernel cannot collapse them on
// request (before Linux 6.1) or has no huge page to spare, they stay small and move so.
void NodeEngine::counted_in_kernel() noexcept {
  if (granule_ < kGranule) return;
  const Guard guard(lock_);
  for_runs(
      {0, top_}, [](const Granule& g) { return g.touched && g.live != 0; },
      [this](Run run) {
        for (auto i = run.first; i < run.first + run.count; ++i)
          madvise(pointer(i), granule_, MADV_COLLAPSE);
      });
}

void NodeEngine::on_minor(void* self, const Fault& fault) noexcept {
  auto& engine = *static_cast<NodeEngine*>(self);
  const auto count = engine.count_fault_.load();
  if (count != nullptr && count(engine.count_source_, fault)) return;
  if (engine.loop_->cont(fault.address & ~(kGranule - 1), kGranule) != 0)
    engine.loop_->cont(fault.address & ~std::uintptr_t{4095}, 4096);
}

void NodeEngine::on_missing(void* self, const Fault& fault) noexcept {
  auto& engine = *static_cast<NodeEngine*>(self);
  const auto block = static_cast<BlockIndex>((fault.address - engine.arena_) / kGranule);
  const auto page = fault.address & ~std::uintptr_t{4095};
  switch (engine.phase_) {
    case Phase::moving_out:  // woken when the shared mapping is in place
    case Phase::sealing:     // woken in the end
      return;
    case Phase::shared:
      engine.shared_->install(block, 0);
      return;
    case Phase::moving_back:
      if (!engine.copy_back(block)) engine.loop_->zero(page, 4096);
      [[fallthrough]];
    case Phase::off:
      engine.loop_->wake(page, 4096);
  }
}

int NodeEngine::start_counting() noexcept {
  if (counting_) return -EALREADY;
  if (!loop_ || !loop_->can_count() || !loop_->can_replace()) return -EOPNOTSUPP;
  Guard guard(lock_);
  wait_until_settled(guard);
  const int code = to_shared();
  if (code == 0) {
    counting_ = true;
    held_ = 0;
    for (GranuleIndex i = 0; i < top_; ++i) {
      granules_[i].place = Place::slow;
      granules_[i].binds_fast = false;
    }
    queued_out_ = 0;
  }
  thaw();
  return code;
}

int NodeEngine::stop_counting() noexcept {
  if (!counting_) return -EALREADY;
  Guard guard(lock_);
  wait_until_settled(guard);
  const int code = to_private();
  if (code == 0) {
    counting_ = false;
    for (GranuleIndex i = 0; i < top_; ++i)
      if (granules_[i].wanted != 0) queue_in(i);
  }
  thaw();
  return code;
}

int NodeEngine::to_shared() noexcept {
  if (top_ != 0 && pinned_bytes() > pinned_) return -EBUSY;  // a page could not be set aside
  std::uintptr_t aside = 0;
  try {
    shared_ = std::make_unique<SharedFrames>(*loop_, arena_, mapped_bytes_, pinned_);
    if (top_ != 0) aside = reserve_anonymous(round_up(top_ * granule_, kGranule), kGranule);
  } catch (const Error& error) {
    shared_.reset();
    return -(error.code() != 0 ? error.code() : ENOMEM);
  }
  calls_->bind(shared_->buffer(0, 0), mapped_bytes_, nodes_.slow);
  phase_ = Phase::moving_out;
  int code = top_ != 0 ? set_aside(aside) : 0;
  if (code == 0) {
    code = put_shared(aside);
    if (code != 0) put_back(aside, top_);
  }
  if (aside != 0) munmap(reinterpret_cast<void*>(aside), round_up(top_ * granule_, kGranule));
  if (code == 0) return 0;
  phase_ = Phase::off;
  shared_.reset();
  return code;
}

// The page tables of the arena go elsewhere; whoever touches it from now on waits. The kernel moves
// one range of one policy at a time.
int NodeEngine::set_aside(std::uintptr_t aside) noexcept {
  int code = loop_->register_range(arena_, mapped_bytes_, true, false);
  GranuleIndex done = 0;
  for_policies(top_, [&](Run run) {
    if (code != 0) return;
    code = move_tables(address_of(run.first), aside + run.first * granule_, run.count * granule_,
                       MREMAP_DONTUNMAP);
    if (code == 0) done = run.first + run.count;
  });
  if (code == 0) return loop_->unregister_range(aside, top_ * granule_);
  put_back(aside, done);
  return code;
}

// As though nothing had happened; whoever waits tries again.
void NodeEngine::put_back(std::uintptr_t aside, GranuleIndex end) noexcept {
  for_policies(end, [&](Run run) {
    move_tables(aside + run.first * granule_, address_of(run.first), run.count * granule_, 0);
  });
  phase_ = Phase::off;
  loop_->unregister_range(arena_, mapped_bytes_);
}

int NodeEngine::put_shared(std::uintptr_t aside) noexcept {
  for (BlockIndex block = 0; block * kGranule < top_ * granule_; ++block)
    if (lives(block))
      std::memcpy(shared_->buffer(block, 0), reinterpret_cast<void*>(aside + block * kGranule),
                  kGranule);
  std::uintptr_t prepared = 0;
  int code = 0;
  try {
    prepared = map_shared(shared_->descriptor(), mapped_bytes_, kGranule);
    code = loop_->register_range(prepared, mapped_bytes_, true, true);
  } catch (const Error& error) {
    code = -ENOMEM;
  }
  if (code == 0) {
    shared_->count(true);
    phase_ = Phase::shared;
    code = loop_->replace_mapping(arena_, mapped_bytes_, prepared);
  }
  return code;
}

// Whether a block of 2 MiB holds anything that lives.
bool NodeEngine::lives(BlockIndex block) const noexcept {
  const auto per_block = kGranule / granule_;
  for (auto i = block * per_block; i < (block + 1) * per_block && i < top_; ++i)
    if (granules_[i].live != 0) return true;
  return false;
}

int NodeEngine::to_private() noexcept {
  std::uintptr_t prepared = 0;
  try {
    copied_.assign(mapped_bytes_ / kGranule, false);
    prepared = map_private();
  } catch (const std::exception&) {
    return -ENOMEM;
  }
  int code = loop_->register_range(prepared, mapped_bytes_, true, false);
  phase_ = Phase::sealing;
  if (code == 0) code = loop_->replace_mapping(arena_, mapped_bytes_, prepared);
  if (code != 0) {
    phase_ = Phase::shared;
    munmap(reinterpret_cast<void*>(prepared), mapped_bytes_);
    return code;
  }
  if (code = shared_->seal(); code != 0) return code;
  phase_ = Phase::moving_back;
  for (BlockIndex block = round_up(top_ * granule_, kGranule) / kGranule; block-- > 0;) {
    if (lives(block)) copy_back(block);
    shared_->drop_from(block);
  }
  code = loop_->unregister_range(arena_, mapped_bytes_);
  phase_ = Phase::off;
  loop_->wake(arena_, mapped_bytes_);
  shared_.reset();
  return code;
}

// From the memory file to its place, once. False: the file has nothing there.
bool NodeEngine::copy_back(BlockIndex block) noexcept {
  const std::lock_guard guard(copies_lock_);
  if (copied_[block]) return true;
  const auto offset = static_cast<off_t>(block * kGranule);
  const auto data = lseek(shared_->descriptor(), offset, SEEK_DATA);
  if (data < 0 || data >= offset + static_cast<off_t>(kGranule)) return false;
  copied_[block] = true;
  loop_->copy(arena_ + block * kGranule,
              reinterpret_cast<std::uintptr_t>(shared_->buffer(block, 0)), kGranule);
  return true;
}

}  // namespace sentinel
