// The session's hot path: what happens at each op.
#include <utility>

#include "runtime/session.h"
#include "sentinel/adaptor.h"

namespace sentinel {
namespace {

// Its name, and where its arguments lie (DeepUM, section 3.1).
std::uint64_t kernel_hash(const PlanFollower::Op& op) {
  auto hash = op.name;
  for (const auto& tensor : op.awaited)
    for (const auto word : {std::uint64_t{tensor.address}, tensor.bytes})
      hash = extended(hash, word, OpOrder::sequence);
  return hash;
}

// A limit may hold before there is a plan: memory is then by demand in the step that is profiled.
double waited_us(const Engine& engine, const FastLimit& limit) {
  return engine.guarded() && limit.bytes() != 0 ? engine.counters().stall_us : 0;
}

}  // namespace

void Session::layer(const char* name, Phase phase) noexcept {
  if (in_child_ || Remaking::replays_here() || !training_.recording().on()) return;
  const Guard guard(lock_);
  if (trains(this_thread())) training_.recording().found_layer(name, phase);
}

// A layer that ends lets the next begin. A program without a framework's ops gets one op a layer.
void Session::layer_end() noexcept {
  if (in_child_) return;
  Guard guard(lock_);
  if (order_ == OpOrder::sequence) this_thread().trains = true;  // else it may be any thread's op
  const auto name = training_.recording().next_mark();
  const bool has_ops = training_.profile().framework() != "c";
  guard.unlock();
  if (!has_ops) op_end();
  guard.lock();
  training_.recording().marked_layer(name);
  guard.unlock();
  if (!has_ops) {
    op_start("layer", Phase::forward, nullptr);
    op_run();
  }
}

void Session::op_start(const char* name, Phase phase, const char* layer) noexcept {
  auto& worker = this_thread();
  if (in_child_ || Remaking::replays_here() || (order_ == OpOrder::sequence && !worker.trains))
    return;
  if (!wants_ops() && (worker.still || untold(true))) {
    worker.still = true;
    return;
  }
  if (std::exchange(worker.still, false)) untold(false);
  Guard guard(lock_);
  training_.recording().stillness().op_is_told();
  worker.in_op = true;
  worker.late = worker.runs = false;
  worker.step = training_.begun();
  if (layer != nullptr) training_.recording().found_layer_once(layer, phase);
  if (training_.recording().on())
    worker.op = training_.recording().recorder().op_start(name, phase,
                                                          waited_us(*engine_, training_.limit()));
  training_.lane().begin(worker.lane);
  if (engine_->guarded()) engine_->tick();
  if (!training_.follower().op_start(worker.plan, training_.recording().hash(name)))
    training_.recording().ask_for_tensors(
        true);  // by demand from here on: what is used now should stay
  if (replays_.any()) replays_.begin(worker.plan, name, guard);
}

void Session::op_tensor(const void* storage, std::size_t bytes, int access) noexcept {
  if (in_child_ || Remaking::replays_here() || storage == nullptr || this_thread().still) return;
  Guard guard(lock_);
  auto& worker = here();
  if (!trains(worker)) {  // beside the training: what it writes at any time is no chain's input
    guard.unlock();
    if ((access & SENTINEL_WRITE) != 0 && replays_.remaking().follows())
      replays_.reached(storage, false);
    return;
  }
  auto* tensor = training_.space().find(storage);
  if (!engine_->guarded() && engine_->contains(storage)) need(worker, tensor, storage, bytes);
  if (tensor != nullptr && (training_.limit().bytes() != 0 || !engine_->guarded()))
    engine_->touch(tensor->address, tensor->bytes);
  if (tensor == nullptr && worker.in_op && engine_->contains(storage))
    replays_.names_part(reinterpret_cast<std::uintptr_t>(storage), bytes);
  const bool overwrites =
      tensor != nullptr && tensor->bytes == bytes && (access & SENTINEL_OVERWRITE) != 0;
  const bool later = tensor != nullptr && worker.in_op &&
                     replays_.names(*tensor, (access & SENTINEL_WRITE) != 0, overwrites);
  if (overwrites && !later) overwrite(*tensor);
  if (!training_.recording().on()) return;
  auto& recorder = training_.recording().recorder();
  const auto record = tensor != nullptr
                          ? tensor->record
                          : recorder.foreign(reinterpret_cast<std::uintptr_t>(storage), bytes);
  if (record != StepRecorder::kNone)
    recorder.op_uses(worker.op, record, (access & SENTINEL_READ) != 0,
                     (access & SENTINEL_WRITE) != 0);
}

// No plan fetches it for this op, unless slow memory is used in place.
void Session::overwrite(LiveTensor& tensor) {
  if (engine_->in_place() != nullptr) return;
  engine_->overwrite(tensor.address, tensor.bytes);
  if (options_.tiers.three()) return;
  if (std::exchange(tensor.wanted, true)) return;
  engine_->promote(tensor.address, tensor.bytes);
}

// A kernel will use it. Without a table entry it is a part of a tensor (of a dlpack capsule, say).
// Of a session that manages nothing any more nothing leaves.
void Session::need(Worker& worker, LiveTensor* tensor, const void* storage, std::size_t bytes) {
  training_.lane().use(worker.lane);
  if (tensor != nullptr) {
    if (!training_.phases().is(State::idle)) training_.lane().let_go(*tensor);
    return worker.plan.awaited.push_back(*tensor);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(storage);
  engine_->touch(address, bytes);
  worker.plan.awaited.push_back({.address = address, .bytes = bytes});
}

void Session::compute_on(void* stream) noexcept {
  if (in_child_) return;
  try {
    if (auto* device = engine_->device()) device->compute_on(stream);
  } catch (const Error& error) {
    refuse(error);
  }
}

void Session::forget_stream(void* stream) noexcept {
  if (in_child_) return;
  try {
    if (auto* device = engine_->device()) device->forget(stream);
  } catch (const Error& error) {
    refuse(error);
  }
}

// The op's inputs are known; it computes as soon as what the plan wants for it is there.
void Session::op_run() noexcept {
  auto& worker = this_thread();
  if (in_child_ || worker.still || !trains(worker)) return;
  if (replays_.any()) replays_.run([this](LiveTensor& tensor) { overwrite(tensor); });
  if (training_.phases().paged() && !worker.runs)
    engine_->paging()->kernel(kernel_hash(worker.plan));
  training_.follower().await(worker.plan, lock_);
  worker.plan.awaited.clear();
  if (std::exchange(worker.runs, true) || !training_.recording().on()) return;
  const Guard guard(lock_);
  if (training_.recording().on() && worker.step == training_.begun() && !worker.late)
    training_.recording().recorder().op_run(worker.op, waited_us(*engine_, training_.limit()));
}

void Session::op_end() noexcept {
  if (in_child_) return;
  if (std::exchange(this_thread().still, false)) {
    untold(false);
    return;
  }
  if (!trains(this_thread())) return;
  if (auto* device = engine_->device(); device != nullptr && training_.recording().on())
    device->finish();  // to know its time
  Guard guard(lock_);
  auto& worker = here();
  worker.in_op = false;
  replays_.computed();
  training_.lane().end(worker.lane);
  if (order_ == OpOrder::sequence || !worker.late) complete(worker);
  if (order_ == OpOrder::any) before_first_op(worker);  // what follows in this thread is not its
  training_.limit().follow_cgroup_now_and_then();
  guard.unlock();
  replays_.end(worker.plan);
}

void Session::complete(Worker& worker) {
  if (training_.recording().on())
    training_.recording().recorder().op_end(worker.op, waited_us(*engine_, training_.limit()));
  if (training_.counting().active()) {
    training_.counting().drain(worker.op);
    training_.profile().snapshot();
  }
  training_.follower().op_end(worker.plan);
}

}  // namespace sentinel
