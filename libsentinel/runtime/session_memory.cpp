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
  const Guard guard(lock_);
  auto& worker = here();
  const bool trains = this->trains(worker);
  const auto slot = trains ? planned_slot(worker, bytes) : LiveTensor::kUnplanned;
  use_device(worker);
  const bool own_pages = state_ == State::warmup || state_ == State::profiling;
  auto* tensor = space_.allocate(bytes, slot, own_pages);
  if (keeps_all_ && engine_->is_short()) stir();
  if (tensor == nullptr) return nullptr;
  if (trains) note_allocation(allocation_event(worker.name, bytes), bytes);
  if (!engine_->guarded()) stay(*tensor);
  if (trains && recording())
    tensor->record = recorder_.allocated(worker.op, bytes, tensor->address - engine_->arena());
  if (counted_) arm(*tensor);
  if (watch_) watch_->cover(tensor->address + bytes);
  return reinterpret_cast<void*>(tensor->address);
}

void Session::note_allocation(std::uint64_t event, std::size_t bytes) {
  step_hash_ = extended(step_hash_, event, order_);
  if (active_ != nullptr && order_ == OpOrder::any) active_->matcher().allocated(event, bytes);
}

std::string Session::why_full(std::size_t bytes) {
  if (in_child_ && !engine_->guarded()) return "a forked child cannot use its parent's GPU";
  Guard guard(lock_);
  const bool no_addresses = engine_->guarded() || space_.out_of_addresses();
  const auto pinned = pinned_bytes_;
  guard.unlock();
  if (no_addresses && options_.gpu_memory == "managed" && driver_)
    return "managed memory has no more addresses than the device had bytes free; take "
           "--gpu-memory pools";
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

Session::Memory Session::memory(bool reset) {
  const Guard guard(lock_);
  const auto counters = engine_->counters();
  const Memory memory{.live_bytes = space_.live_bytes(),
                      .most_live_bytes = space_.most_live_bytes(),
                      .held_bytes = counters.held_bytes,
                      .most_held_bytes = counters.peak_bytes,
                      .budget_bytes = summary_.fast_limit_bytes};
  if (reset) space_.reset_most_live_bytes();
  return memory;
}

// Until an op names it. What none ever does (a library's workspace) is used by kernels all the
// same.
void Session::stay(LiveTensor& tensor) {
  tensor.stays = true;
  engine_->stay(tensor.address, tensor.bytes);
}

void Session::may_leave(LiveTensor& tensor) {
  if (tensor.pinned) return;
  if (std::exchange(tensor.stays, false)) engine_->may_leave(tensor.address, tensor.bytes);
}

// Whoever has the address uses it when it pleases, and behind what this thread computes on. (A
// program orders its own streams behind that, for there the contents were made.)
bool Session::pin(const void* storage) noexcept {
  if (in_child_ || engine_->guarded() || !engine_->contains(storage)) return false;
  Guard guard(lock_);
  auto* tensor = space_.find(storage);
  if (tensor == nullptr || std::exchange(tensor->pinned, true)) return false;
  pinned_bytes_ += tensor->bytes;
  if (!tensor->stays) stay(*tensor);
  const auto [address, bytes] = std::pair(tensor->address, tensor->bytes);
  guard.unlock();
  engine_->await(address, bytes);
  return true;
}

void Session::used_on(const void* storage, void* stream) noexcept {
  if (in_child_ || engine_->guarded()) return;
  compute_on(stream);
  Guard guard(lock_);
  const auto* tensor = engine_->contains(storage) ? space_.find(storage) : nullptr;
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
  auto* tensor = space_.find(address);
  if (tensor == nullptr) {
    say("a pointer was freed that is no live tensor; the program is at fault, or freed it twice");
    abort();
  }
  if (std::exchange(tensor->pinned, false)) pinned_bytes_ -= tensor->bytes;
  may_leave(*tensor);
  if (counted_) disarm(*tensor);
  if (recording() && tensor->record != StepRecorder::kNone) recorder_.freed(tensor->record);
  if (auto& worker = this_thread();
      engine_->in_place() && trains(worker) && tensor->slot != LiveTensor::kUnplanned)
    worker.died.push_back({tensor->slot, fast_share(*tensor)});
  space_.release(reinterpret_cast<std::uintptr_t>(address));
}

// ---------------------------------------------------------------- of other devices

void* Session::allocate_unmanaged(int device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (in_child_) throw Error("a forked child cannot use its parent's GPU");
  return unmanaged_.allocate(device, bytes);
}

std::string Session::why_unmanaged_full(int device, std::size_t bytes) {
  return unmanaged_.why_full(device, bytes);
}

void Session::release_unmanaged(int device, void* address) noexcept {
  if (in_child_) return;
  try {
    unmanaged_.release(device, address);
  } catch (const std::exception& error) {
    tell_of_kept(device, error);
  }
}

// What ends training on a device that is managed is told here: the program hears of it from its
// framework, and may go on.
void Session::tell_of_kept(int device, const std::exception& why) {
  const auto* refused = dynamic_cast<const gpu::DriverError*>(&why);
  if (refused != nullptr && refused->status == gpu::kDeinitialized) return;
  if (!told_of_kept_.exchange(true))
    say(fmt::format("memory of gpu{} is not given back: {}", device, in_words(why)));
}

Session::Memory Session::unmanaged(int device, bool reset) {
  const auto [live, most_live, held, most_held] = unmanaged_.figures(device, reset);
  return {.live_bytes = live,
          .most_live_bytes = most_live,
          .held_bytes = held,
          .most_held_bytes = most_held,
          .budget_bytes = 0};
}

std::unique_ptr<gpu::Driver> Session::open_unmanaged(int device) {
  auto driver = gpu::open_driver(device, options_.cuda);
  const bool reached = engine_->share(device);
  const auto* apart =
      ". It cannot reach what lies on the other: copy by way of the processor, or "
      "take --gpu-memory managed";
  say(
      fmt::format("gpu{0} is not managed, gpu{1} is: tensors of gpu{0} stay there, outside "
                  "--fast{2}",
                  device, gpu(), reached ? "" : apart));
  return driver;
}

}  // namespace sentinel
