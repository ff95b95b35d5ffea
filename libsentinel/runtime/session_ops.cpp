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

}  // namespace

void Session::layer(const char* name, Phase phase) noexcept {
  if (is_apart() || !training_.recording().on()) return;
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
  if (is_apart() || (order_ == OpOrder::sequence && !worker.trains)) return;
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
    worker.op = training_.recording().recorder().op_start(name, phase);
  training_.lane().begin(worker.lane);
  if (engine_->guarded()) engine_->tick();
  if (!training_.follower().op_start(worker.plan, training_.recording().hash(name)))
    training_.recording().ask_for_tensors(
        true);  // by demand from here on: what is used now should stay
  begin_replays(worker, name, guard);
}

// What the plan has made again before this op. A step that has turned out to be of another kind
// knows no recipes.
void Session::begin_replays(Worker& worker, const char* name, Guard& guard) {
  if (!remaking_.possible()) return;
  const bool follows = training_.follower().replays_ops(), followed = remaking_.follows();
  remaking_.op_begins(worker.remaking, name, follows);
  worker.plan.discarding = follows;
  if (!follows && !followed) return;
  std::vector<TensorNumber> numbers;
  for (const auto& tensor : training_.follower().remade_before(worker.plan))
    numbers.push_back(remaking_.number(tensor));
  guard.unlock();
  if (!follows)
    remaking_.all_there();
  else if (!numbers.empty())
    remaking_.remake(numbers);
}

void Session::op_tensor(const void* storage, std::size_t bytes, int access) noexcept {
  if (is_apart() || storage == nullptr || this_thread().still) return;
  const Guard guard(lock_);
  auto& worker = here();
  if (!trains(worker)) return;
  auto* tensor = training_.space().find(storage);
  if (!engine_->guarded() && engine_->contains(storage)) need(worker, tensor, storage, bytes);
  if (tensor != nullptr && (training_.limit().bytes() != 0 || !engine_->guarded()))
    engine_->touch(tensor->address, tensor->bytes);
  const bool overwrites =
      tensor != nullptr && tensor->bytes == bytes && (access & SENTINEL_OVERWRITE) != 0;
  const bool later =
      tensor != nullptr && worker.in_op && remaking_.follows() &&
      remaking_.names(worker.remaking, *tensor, (access & SENTINEL_WRITE) != 0, overwrites);
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
  remaking_.op_runs(worker.remaking, [this](LiveTensor& tensor) { overwrite(tensor); });
  if (training_.phases().paged() && !worker.runs)
    engine_->paging()->kernel(kernel_hash(worker.plan));
  training_.follower().await(worker.plan, lock_);
  worker.plan.awaited.clear();
  if (std::exchange(worker.runs, true) || !training_.recording().on()) return;
  const Guard guard(lock_);
  if (training_.recording().on() && worker.step == training_.begun() && !worker.late)
    training_.recording().recorder().op_run(worker.op);
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
  if (remaking_.follows()) remaking_.op_computed(worker.remaking);
  training_.lane().end(worker.lane);
  if (order_ == OpOrder::sequence || !worker.late) complete(worker);
  if (order_ == OpOrder::any) before_first_op(worker);  // what follows in this thread is not its
  training_.limit().follow_cgroup_now_and_then();
  guard.unlock();
  if (remaking_.follows()) discard(worker);
}

// What the op's end has the plan discard, but for what cannot be: it is demoted.
void Session::discard(Worker& worker) {
  worker.remaking.discards = std::exchange(worker.plan.discards, {});
  remaking_.op_ended(worker.remaking);
  if (worker.remaking.discards.empty()) return;
  const Guard guard(lock_);
  for (const auto& tensor : worker.remaking.discards) {
    auto* now = training_.space().find(reinterpret_cast<const void*>(tensor.address));
    if (now != nullptr && now->birth == tensor.birth)
      training_.follower().demote_instead(worker.plan, *now);
  }
}

bool Session::wants_recipe() noexcept {
  auto& worker = this_thread();
  if (is_apart() || !worker.in_op || !remaking_.follows()) return false;
  const Guard guard(lock_);
  return training_.follower().replays(worker.plan);
}

std::uint64_t Session::tensor_number(const void* storage) noexcept {
  if (is_apart() || !engine_->contains(storage)) return 0;
  const Guard guard(lock_);
  const auto* tensor = training_.space().find(storage);
  return tensor != nullptr && !remaking_.orphan(*tensor) ? remaking_.number(*tensor) : 0;
}

void Session::recipe(void* recipe, Replays::Numbers read, Replays::Numbers written) noexcept {
  const Guard guard(lock_);
  remaking_.note(recipe, this_thread().remaking, read, written);
}

void Session::complete(Worker& worker) {
  if (training_.recording().on()) training_.recording().recorder().op_end(worker.op);
  if (training_.counting().active()) {
    training_.counting().drain(worker.op);
    training_.profile().snapshot();
  }
  training_.follower().op_end(worker.plan);
}

}  // namespace sentinel
