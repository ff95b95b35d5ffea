// Tensors that begin and end, and what is told of their memory.
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "base/failure.h"
#include "base/units.h"
#include "engine/gpu/checked.h"
#include "runtime/session.h"

namespace sentinel {

void* Session::allocate(std::size_t bytes) noexcept {
  if (bytes == 0) return nullptr;
  if (in_child_) return engine_->guarded() ? aligned_alloc(64, round_up(bytes, 64)) : nullptr;
  if (!engine_->guarded()) bytes = round_up(bytes, engine_->alignment());
  Guard guard(lock_);
  training_.await_admission(guard);
  auto& worker = here();
  const bool trains = this->trains(worker);
  const bool planned = trains && may_follow();
  const auto slot = planned ? training_.follower().slot(worker.plan, worker.in_op, bytes)
                            : LiveTensor::kUnplanned;
  if (!Remaking::replays_here()) training_.lane().use(worker.lane);
  const bool own_pages =
      training_.phases().is(State::warmup) || training_.phases().is(State::profiling);
  auto* tensor = training_.space().allocate(bytes, slot, own_pages);
  training_.recording().stillness().made_one(training_.space().live_bytes(),
                                             training_.limit().bytes());
  if (tensor == nullptr) return nullptr;
  if (trains) training_.follower().allocated(allocation_event(worker.plan.name, bytes), bytes);
  if (!engine_->guarded()) training_.lane().hold(*tensor);
  if (trains && training_.recording().on())
    tensor->record = training_.recording().recorder().allocated(worker.op, bytes,
                                                                tensor->address - engine_->arena());
  if (training_.counting().active()) training_.counting().arm(*tensor);
  training_.log().watch_birth(tensor->address + bytes);
  return reinterpret_cast<void*>(tensor->address);
}

// Not in the first steps, in which optimizers make what stays; and while profiling each tensor has
// pages of its own.
bool Session::may_follow() {
  return !training_.phases().is(State::profiling) &&
         (!training_.follower().diverged() || training_.phases().is(State::steady));
}

std::string Session::why_full(std::size_t bytes) {
  if (in_child_ && !engine_->guarded()) return "a forked child cannot use its parent's GPU";
  Guard guard(lock_);
  const bool no_addresses = engine_->guarded() || training_.space().out_of_addresses();
  const auto pinned = training_.lane().pinned_bytes();
  guard.unlock();
  if (no_addresses && options_.gpu.memory == "managed" && driver_)
    return "managed memory has no more addresses than the device had bytes free; take "
           "--gpu-memory pools";
  if (no_addresses && !options_.tiers.arena_limit.empty())
    return fmt::format("the arena's addresses are used up, and {} leaves no more: raise it",
                       options_.tiers.arena_limit);
  if (no_addresses) return "the arena's addresses are used up; raise SENTINEL_ARENA";
  const auto now = memory();
  return fmt::format(
      "gpu{} has no room for {} beside what the running op uses: {} of tensors are alive, {} are "
      "held on the device{}{}",
      gpu(), print_bytes(bytes), print_bytes(now.live_bytes), print_bytes(now.held_bytes),
      now.budget_bytes != 0 ? fmt::format(" within a budget of {}", print_bytes(now.budget_bytes))
                            : "",
      pinned != 0
          ? fmt::format(", and {} stay, for their addresses were asked for", print_bytes(pinned))
          : "");
}

MemoryFigures Session::memory(bool reset) {
  const Guard guard(lock_);
  const auto counters = engine_->counters();
  const MemoryFigures memory{.live_bytes = training_.space().live_bytes(),
                             .most_live_bytes = training_.space().most_live_bytes(),
                             .held_bytes = counters.held_bytes,
                             .most_held_bytes = counters.peak_bytes,
                             .budget_bytes = training_.limit().bytes()};
  if (reset) training_.space().reset_most_live_bytes();
  return memory;
}

// Whoever has the address uses it when it pleases, and behind what this thread computes on. (A
// program orders its own streams behind that, for there the contents were made.)
bool Session::pin(const void* storage) noexcept {
  if (in_child_ || engine_->guarded() || !engine_->contains(storage)) return false;
  replays_.reached(storage, true);
  Guard guard(lock_);
  auto* tensor = training_.space().find(storage);
  if (tensor == nullptr || tensor->pinned) return false;
  training_.lane().pin(*tensor);
  const auto [address, bytes] = std::pair(tensor->address, tensor->bytes);
  guard.unlock();
  engine_->await(address, bytes);
  return true;
}

void Session::used_on(const void* storage, void* stream) noexcept {
  if (in_child_ || engine_->guarded()) return;
  replays_.reached(storage, true);
  compute_on(stream);
  Guard guard(lock_);
  const auto* tensor = engine_->contains(storage) ? training_.space().find(storage) : nullptr;
  if (tensor == nullptr) return;
  const auto [address, bytes] = std::pair(tensor->address, tensor->bytes);
  guard.unlock();
  engine_->await(address, bytes);
}

void Session::release(void* address) noexcept {
  if (address == nullptr) return;
  if (!owns(address)) return ::free(address);  // a forked child's own
  if (in_child_) return;
  const Guard guard(lock_);
  auto* tensor = training_.space().find(address);
  const auto twice = [this] {
    voice_.say(
        "a pointer was freed that is no live tensor; the program is at fault, or freed it twice");
    abort();
  };
  if (tensor == nullptr) twice();
  const bool replays = replays_.any() || replays_.remaking().any_reached();
  if (replays && replays_.remaking().orphan(*tensor)) twice();
  training_.lane().freed(*tensor);
  if (training_.counting().active()) training_.counting().disarm(*tensor);
  if (training_.recording().on() && tensor->record != StepRecorder::kNone)
    training_.recording().recorder().freed(tensor->record);
  if (auto& worker = this_thread(); trains(worker)) training_.follower().died(worker.plan, *tensor);
  if (replays && replays_.remaking().dies(*tensor)) return;  // a chain still reads it
  training_.space().release(reinterpret_cast<std::uintptr_t>(address));
}

}  // namespace sentinel
