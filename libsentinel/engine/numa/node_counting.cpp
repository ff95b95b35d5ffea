// Moves all pages into a shared mapping before a counted step, and back after it.
#include "engine/numa/node_counting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "alloc/ranges.h"
#include "base/units.h"
#include "engine/host/stop.h"
#include "sentinel/error.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace sentinel {
namespace {

int move_tables(std::uintptr_t from, std::uintptr_t to, std::uint64_t bytes, int flags) {
  const void* at = mremap(reinterpret_cast<void*>(from), bytes, bytes,
                          MREMAP_MAYMOVE | MREMAP_FIXED | flags, reinterpret_cast<void*>(to));
  return at != MAP_FAILED ? 0 : -errno;
}

std::unique_ptr<FaultLoop> open_loop() {
  try {
    return FaultLoop::open();
  } catch (const Error&) {  // it serves counting alone
    return nullptr;
  }
}

}  // namespace

NodeCounting::NodeCounting(const NodeGranules& granules)
    : arena_(granules.arena()), granules_(granules), loop_(open_loop()) {
  if (!loop_) return;
  loop_->set_missing_handler(&NodeCounting::on_missing, this);
  loop_->set_minor_handler(&NodeCounting::on_minor, this);
  loop_->set_barred_handler(&NodeCounting::on_barred, this);
  loop_->set_lost_handler([](void*) noexcept { stop_training(kClosed); }, nullptr);
}

// The fault thread ends before what it reads.
NodeCounting::~NodeCounting() {
  if (loop_) loop_->end();
}

void NodeCounting::count_with(Engine::CountFault count, void* source) noexcept {
  if (!loop_) return;
  count_fault_ = nullptr;
  loop_->set_minor_handler(&NodeCounting::on_minor, this);  // waits for the former one
  count_source_ = source;
  count_fault_ = count;
}

void NodeCounting::on_minor(void* self, const Fault& fault) noexcept {
  auto& counting = *static_cast<NodeCounting*>(self);
  const auto count = counting.count_fault_.load();
  if (count != nullptr && count(counting.count_source_, fault)) return;
  if (counting.loop_->cont(fault.address & ~(kGranule - 1), kGranule) != 0)
    counting.loop_->cont(fault.address & ~std::uintptr_t{4095}, 4096);
}

void NodeCounting::on_barred(void* self, const Fault& fault) noexcept {
  auto& counting = *static_cast<NodeCounting*>(self);
  const auto count = counting.count_fault_.load();
  if (count != nullptr && count(counting.count_source_, fault)) return;
  const auto page = fault.address & ~std::uintptr_t{4095};
  if (counting.loop_->unbar(page, 4096) != 0) counting.loop_->wake(page, 4096);
}

int NodeCounting::start_barring() noexcept {
  return loop_ ? loop_->register_for_bars(arena_.begin(), arena_.mapped_bytes(), false)
               : -EOPNOTSUPP;
}

void NodeCounting::stop_barring() noexcept {
  if (loop_) loop_->unregister_range(arena_.begin(), arena_.mapped_bytes());
}

void NodeCounting::on_missing(void* self, const Fault& fault) noexcept {
  auto& counting = *static_cast<NodeCounting*>(self);
  const auto block = static_cast<BlockIndex>((fault.address - counting.arena_.begin()) / kGranule);
  const auto page = fault.address & ~std::uintptr_t{4095};
  switch (counting.phase_) {
    case Phase::moving_out:  // woken when the shared mapping is in place
    case Phase::sealing:     // woken in the end
      return;
    case Phase::shared:
      counting.shared_->install(block, 0);
      return;
    case Phase::moving_back:
      if (!counting.copy_back(block)) counting.loop_->zero(page, 4096);
      [[fallthrough]];
    case Phase::off:
      counting.loop_->wake(page, 4096);
  }
}

int NodeCounting::to_shared() noexcept {
  if (granules_.top() != 0 && pinned_bytes() > pinned_)
    return -EBUSY;  // a page could not be set aside
  std::uintptr_t aside = 0;
  try {
    shared_ =
        std::make_unique<SharedFrames>(*loop_, arena_.begin(), arena_.mapped_bytes(), pinned_);
    if (granules_.top() != 0)
      aside = reserve_anonymous(round_up(granules_.bytes_below_top(), kGranule), kGranule);
  } catch (const Error& error) {
    shared_.reset();
    return -(error.code() != 0 ? error.code() : ENOMEM);
  }
  arena_.prefer_slow(shared_->buffer(0, 0));
  phase_ = Phase::moving_out;
  int code = granules_.top() != 0 ? set_aside(aside) : 0;
  if (code == 0) {
    code = put_shared(aside);
    if (code != 0) put_back(aside, granules_.top());
  }
  if (aside != 0)
    munmap(reinterpret_cast<void*>(aside), round_up(granules_.bytes_below_top(), kGranule));
  if (code == 0) return 0;
  phase_ = Phase::off;
  shared_.reset();
  return code;
}

// The page tables of the arena go elsewhere; whoever touches it from now on waits. The kernel moves
// one range of one policy at a time.
int NodeCounting::set_aside(std::uintptr_t aside) noexcept {
  int code = loop_->register_range(arena_.begin(), arena_.mapped_bytes(), true, false);
  GranuleIndex done = 0;
  granules_.for_policies(granules_.top(), [&](Run run) {
    if (code != 0) return;
    code = move_tables(arena_.address_of(run.first), aside + run.first * arena_.granule(),
                       run.count * arena_.granule(), MREMAP_DONTUNMAP);
    if (code == 0) done = run.first + run.count;
  });
  if (code == 0) return loop_->unregister_range(aside, granules_.bytes_below_top());
  put_back(aside, done);
  return code;
}

// As though nothing had happened; whoever waits tries again.
void NodeCounting::put_back(std::uintptr_t aside, GranuleIndex end) noexcept {
  granules_.for_policies(end, [&](Run run) {
    move_tables(aside + run.first * arena_.granule(), arena_.address_of(run.first),
                run.count * arena_.granule(), 0);
  });
  phase_ = Phase::off;
  loop_->unregister_range(arena_.begin(), arena_.mapped_bytes());
}

int NodeCounting::put_shared(std::uintptr_t aside) noexcept {
  for (BlockIndex block = 0; block * kGranule < granules_.bytes_below_top(); ++block)
    if (granules_.lives(block))
      std::memcpy(shared_->buffer(block, 0), reinterpret_cast<void*>(aside + block * kGranule),
                  kGranule);
  std::uintptr_t prepared = 0;
  int code = 0;
  try {
    prepared = map_shared(shared_->descriptor(), arena_.mapped_bytes(), kGranule);
    code = loop_->register_range(prepared, arena_.mapped_bytes(), true, true);
  } catch (const Error& error) {
    code = -ENOMEM;
  }
  if (code == 0) {
    shared_->count(true);
    phase_ = Phase::shared;
    code = loop_->replace_mapping(arena_.begin(), arena_.mapped_bytes(), prepared);
  }
  return code;
}

int NodeCounting::to_private() noexcept {
  std::uintptr_t prepared = 0;
  try {
    copied_.assign(arena_.mapped_bytes() / kGranule, false);
    prepared = arena_.map();
  } catch (const std::exception&) {
    return -ENOMEM;
  }
  int code = loop_->register_range(prepared, arena_.mapped_bytes(), true, false);
  phase_ = Phase::sealing;
  if (code == 0) code = loop_->replace_mapping(arena_.begin(), arena_.mapped_bytes(), prepared);
  if (code != 0) {
    phase_ = Phase::shared;
    munmap(reinterpret_cast<void*>(prepared), arena_.mapped_bytes());
    return code;
  }
  if (code = shared_->seal(); code != 0) return code;
  phase_ = Phase::moving_back;
  for (BlockIndex block = round_up(granules_.bytes_below_top(), kGranule) / kGranule;
       block-- > 0;) {
    if (granules_.lives(block)) copy_back(block);
    shared_->drop_from(block);
  }
  code = loop_->unregister_range(arena_.begin(), arena_.mapped_bytes());
  phase_ = Phase::off;
  loop_->wake(arena_.begin(), arena_.mapped_bytes());
  loop_->set_missing_handler(&NodeCounting::on_missing, this);  // waits for one that reads shared_
  shared_.reset();
  return code;
}

// From the memory file to its place, once. False: the file has nothing there.
bool NodeCounting::copy_back(BlockIndex block) noexcept {
  const std::lock_guard guard(copies_lock_);
  if (copied_[block]) return true;
  const auto offset = static_cast<off_t>(block * kGranule);
  const auto data = lseek(shared_->descriptor(), offset, SEEK_DATA);
  if (data < 0 || data >= offset + static_cast<off_t>(kGranule)) return false;
  copied_[block] = true;
  loop_->copy(arena_.begin() + block * kGranule,
              reinterpret_cast<std::uintptr_t>(shared_->buffer(block, 0)), kGranule);
  return true;
}

}  // namespace sentinel
