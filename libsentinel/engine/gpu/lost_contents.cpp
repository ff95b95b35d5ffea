// Sends blocks away without their contents, and copies what was made again into them.
#include "engine/gpu/lost_contents.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "engine/gpu/checked.h"

namespace sentinel::gpu {

LostContents::LostContents(pool::Monitor& monitor, pool::Streams& streams, pool::Blocks& blocks,
                           pool::Places& places, pool::Departures& departures,
                           pool::DemandFetches& demand, const pool::KeepAll& keep_all)
    : monitor_(monitor),
      streams_(streams),
      blocks_(blocks),
      places_(places),
      departures_(departures),
      demand_(demand),
      keep_all_(keep_all) {}

bool LostContents::may_go(const pool::ChunkBlock& b, bool launching) const {
  if (b.live != 1 || !b.holds() || b.pins > 0 || (launching && blocks_.in_use(b))) return false;
  return b.state == State::resident || b.state == State::absent;
}

// Where several streams compute, a program may use the tensor on one of them behind what another
// has launched, and no order between the two is known: there everything is moved.
std::uint64_t LostContents::discard(std::uintptr_t address, std::uint64_t bytes, Engine::Ends ends,
                                    bool launching) noexcept {
  std::uint64_t lost = 0;
  checked([&] {
    const pool::Guard guard = monitor_.hold();
    if (remaker_.load() == nullptr || !streams_.in_one_order() || keep_all_.keeps() ||
        blocks_.pager().taken() || monitor_.program_ending())
      return;
    const auto granule = blocks_.granule();
    const auto [first, past] = blocks_.of(address, bytes);
    pool::Together together;
    for (Index index = first; index < past; ++index) {
      const bool begins = blocks_.at(index) < address;
      const bool ends_in = blocks_.at(index) + granule > address + bytes;
      if ((begins && !ends.first) || (ends_in && !ends.last)) continue;
      if (!may_go(blocks_[index], launching)) continue;
      give_up(index, address, together);
      lost += granule;
    }
    departures_.see_off(together);
    discarded_bytes_ += lost;
  });
  return lost;
}

void LostContents::give_up(Index index, std::uintptr_t address, pool::Together& together) {
  pool::ChunkBlock& b = blocks_[index];
  b.given_up = address;
  b.queued = b.sinks = false;
  if (b.state == State::resident) return departures_.leave(index, nullptr, together);
  b.state = State::lost;
  places_.store().give(std::exchange(b.lies, nullptr));
}

// Waits for chunks, and for what is on its way. What has come stays for the op that runs.
void LostContents::refill(std::uintptr_t address, std::uint64_t bytes,
                          const void* source) noexcept {
  checked([&] {
    pool::Guard guard = monitor_.hold();
    const auto [first, past] = blocks_.of(address, bytes);
    const auto from = reinterpret_cast<std::uintptr_t>(source);
    const bool from_here = from - blocks_.at(0) < blocks_.size() * blocks_.granule();
    do {
      if (from_here) bring(from, bytes, guard);
    } while (make_room(first, past, address, guard));
    fill(first, past, address, bytes, source);
  });
}

// Behind all blocks of the tensor that are given up. True: the lock was let go of on the way.
bool LostContents::make_room(Index first, Index past, std::uintptr_t address, pool::Guard& guard) {
  bool waited = false;
  for (Index index = first; index < past; ++index) {
    if (blocks_[index].given_up != address) continue;
    demand_.use(index);
    if (blocks_[index].state == State::resident) continue;
    waited = true;
    Index count = 1;
    while (index + count < past && blocks_[index + count].given_up == address) ++count;
    if (demand_.make_resident(index, count, guard) == 0)
      throw Error(
          fmt::format("a tensor that is made again finds no room in {} beside what the op "
                      "uses: raise --fast, or train with --no-recompute",
                      print_bytes(blocks_.granule())));
    demand_.use(index);
  }
  return waited;
}

void LostContents::fill(Index first, Index past, std::uintptr_t address, std::uint64_t bytes,
                        const void* source) {
  const auto granule = blocks_.granule();
  Index any = first;
  while (any < past && blocks_[any].given_up != address) ++any;
  if (any == past) return;  // this thread need not have named its stream yet
  streams_.join();
  for (Index index = any; index < past;) {
    Index end = index;
    for (; end < past && blocks_[end].given_up == address; ++end) {
      streams_.await(blocks_[end].mark);
      blocks_[end].given_up = 0;
      refilled_bytes_ += source != nullptr ? granule : 0;
    }
    if (end == index) {
      ++index;
      continue;
    }
    const auto begin = std::max(blocks_.at(index), address);
    const auto over = std::min(blocks_.at(end - 1) + granule, address + bytes);
    if (source != nullptr)
      streams_.copy_here(reinterpret_cast<void*>(begin),
                         static_cast<const char*>(source) + (begin - address), over - begin);
    if (!streams_.in_one_order()) {
      const auto copied = streams_.record_here();
      for (Index n = index; n < end; ++n) blocks_[n].mark = copied;
    }
    index = end;
  }
}

// All of it at once, as an op's operand.
void LostContents::bring(std::uintptr_t address, std::uint64_t bytes, pool::Guard& guard) {
  const auto [first, past] = blocks_.of(address, bytes);
  const auto away = [&](Index index) {
    return blocks_[index].holds() && blocks_[index].state != State::resident;
  };
  bool again = true;
  while (std::exchange(again, false))
    for (Index index = first; index < past; ++index) {
      again = again || away(index);
      demand_.await(index, past, guard);
    }
}

void LostContents::read(std::uintptr_t address, std::uint64_t bytes, void* to) noexcept {
  checked([&] {
    pool::Guard guard = monitor_.hold();
    bring(address, bytes, guard);
    streams_.join();
    streams_.copy_here(to, reinterpret_cast<const void*>(address), bytes);
    monitor_.wait_for(streams_.record_here(), guard);
  });
}

void LostContents::write(std::uintptr_t address, std::uint64_t bytes, const void* from) noexcept {
  checked([&] {
    pool::Guard guard = monitor_.hold();
    bring(address, bytes, guard);
    streams_.join();
    streams_.copy_here(reinterpret_cast<void*>(address), from, bytes);
    monitor_.wait_for(streams_.record_here(), guard);
  });
}

// Its copy in was awaited by what this thread has launched.
void LostContents::used_here(std::uintptr_t address, std::uint64_t bytes) noexcept {
  checked([&] {
    const pool::Guard guard = monitor_.hold();
    if (streams_.in_one_order()) return;
    const auto [first, past] = blocks_.of(address, bytes);
    const auto launched = streams_.record_here();
    for (Index index = first; index < past; ++index)
      if (blocks_[index].state == State::resident && !blocks_[index].dead)
        blocks_[index].mark = launched;
  });
}

}  // namespace sentinel::gpu
