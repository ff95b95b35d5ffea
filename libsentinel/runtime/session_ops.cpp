// The session's hot path: what happens at each op.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/session.h"
#include "sentinel/adaptor.h"

namespace sentinel {

void Session::layer(const char* name, Phase phase) noexcept {
  if (in_child_ || !record_) return;
  const Guard guard(lock_);
  if (trains(this_thread()) && recording() && !marked_layers_) recorder_.layer(name, phase);
}

// A layer that ends lets the next begin. A program without a framework's ops gets one op a layer.
void Session::layer_end() noexcept {
  if (in_child_) return;
  Guard guard(lock_);
  if (order_ == OpOrder::sequence) this_thread().trains = true;  // else it may be any thread's op
  if (!std::exchange(marked_layers_, true) && recording())
    recorder_.one_layer("layer 1");  // and not what was found until now
  const auto name = fmt::format("layer {}", ++layers_marked_ + 1);
  const bool has_ops = framework_ != "c";
  guard.unlock();
  if (!has_ops) op_end();
  guard.lock();
  if (recording()) recorder_.layer(name, Phase::forward);
  guard.unlock();
  if (!has_ops) {
    op_start("layer", Phase::forward, nullptr);
    op_run();
  }
}

void Session::op_start(const char* name, Phase phase, const char* layer) noexcept {
  auto& worker = this_thread();
  if (in_child_ || (order_ == OpOrder::sequence && !worker.trains)) return;
  if (!wants_ops() && (worker.still || untold(true))) {
    worker.still = true;
    return;
  }
  if (std::exchange(worker.still, false)) untold(false);
  const Guard guard(lock_);
  if (keeps_all_) let_go();
  const auto prefix = step_hash_;
  worker.in_op = true;
  worker.late = worker.runs = false;
  worker.step = begun_;
  worker.name = names_.hash(name);
  step_hash_ = extended(step_hash_, op_event(worker.name), order_);
  ++step_ops_;
  if (layer != nullptr && recording() && !marked_layers_) recorder_.layer_once(layer, phase);
  if (recording()) worker.op = recorder_.op_start(name, phase);
  let_device_go(worker);
  worker.unused = !engine_->guarded();
  if (!worker.unused) engine_->tick();
  worker.awaited.clear();
  worker.died.clear();
  worker.bucket = active_;
  if (active_ == nullptr) return;
  worker.place = active_->matcher().op(worker.name);
  follow(worker, prefix);
  prepare(worker);
}

// On a GPU the clock protects what the op uses that launches next. An op is one from the first
// tensor of the device's on that it names or makes: what autograd computes on the processor at the
// same time, in the thread that waits for the device's, leaves that op's tensors protected. So does
// an op of the device's own while another is about to launch: autograd has a thread for each
// device, and what copies between two names tensors of both.
void Session::use_device(Worker& worker) {
  if (!std::exchange(worker.unused, false)) return;
  worker.computes = true;
  if (computing_++ > 0) return;
  engine_->tick();
  engine_->launching(true);
}

void Session::let_device_go(Worker& worker) {
  worker.unused = false;
  if (std::exchange(worker.computes, false) && --computing_ == 0) engine_->launching(false);
}

// At a step's border: from here on ops need not be told, if all is here and stays so under the
// plan.
void Session::be_still() {
  const bool moves_nothing = active_ != nullptr && !active_->moves_anything();
  const bool told =
      still_ || !std::exchange(untold_, false);  // whole steps before, of a known kind
  const bool settled = state_ == State::steady && moves_nothing && !pages_ && !diverged_ && told;
  if (engine_->guarded() || record_ || counted_ || count_next_ || !settled) return stir();
  if (!still_) still_ = keeps_all_ = engine_->keep_all(true);
  untold_ = still_;
}

// What is launched next is told.
void Session::stir() { still_ = false; }

// An untold op counts itself and then asks whether all is kept; this says that it is not and then
// asks for the count. In one order of all four, at least one of the two sees the other.
void Session::let_go() {
  keeps_all_ = false;
  if (untold_ops_ != 0)
    keeps_all_ = true;
  else
    engine_->keep_all(false);
}

bool Session::untold(bool begins) noexcept {
  if (!begins) {
    --untold_ops_;
    return true;
  }
  ++untold_ops_;
  if (keeps_all_) return true;
  const Guard guard(lock_);  // let_go() may be about to find this op
  if (keeps_all_) return true;
  --untold_ops_;
  return false;
}

// Whether births are those of the profiled step: until the step differs, and again as soon as it
// has been as profiled for a while. Not so in the first steps, in which optimizers make what stays;
// and while profiling each tensor has pages of its own. In any order each op is known by itself.
bool Session::on_track() const {
  constexpr std::uint32_t kOps = 16;
  if (state_ == State::profiling) return false;
  if (!diverged_) return true;
  if (order_ == OpOrder::any) return state_ == State::steady;
  return state_ == State::steady && active_->matcher().followed() >= kOps;
}

// Where the plan has what is allocated now. In any order it is the allocations that tell one known
// kind of step from another: a smaller batch has the same ops.
std::uint32_t Session::planned_slot(Worker& worker, std::uint64_t bytes) {
  if (active_ == nullptr || !on_track()) return LiveTensor::kUnplanned;
  if (order_ == OpOrder::any && worker.in_op && !changed_) {
    const auto& before = active_->matcher();
    if (auto* other = bucket_of_allocation(allocation_event(worker.name, bytes))) {
      change_to(*other);
      worker.bucket = other;
      worker.place = other->matcher().take_over(before, worker.name);
      prelude_ = {};
    }
  }
  // Where nothing moves best fit is better: it reuses what is still in the processor's cache.
  if (!active_->moves_anything()) return LiveTensor::kUnplanned;
  const bool outside = order_ == OpOrder::any && !worker.in_op;
  return active_->matcher().allocation(outside ? prelude_ : worker.place, bytes);
}

// What happened before decides whether the step still is of the active bucket's kind at all, or of
// another known one. In any order nothing is before: a step differs as soon as one of its ops does.
void Session::follow(Worker& worker, std::uint64_t prefix) {
  if (diverged_) return;
  const auto position = worker.place.position;
  if (position != StepMatcher::kLost &&
      (order_ == OpOrder::any || active_->matcher().prefix(position) == prefix))
    return;
  if (auto* other = order_ == OpOrder::any ? nullptr : bucket_of_prefix(prefix)) {
    change_to(*other);
    worker.bucket = other;
    worker.place = other->matcher().jump(step_ops_);
    return;
  }
  diverged_ = true;
  wants_tensors_ = true;  // by demand from here on: what is used now should stay
  reuse_frames();
}

// Starts the moves that are due at the op, and notes what it has to wait for.
void Session::prepare(Worker& worker) {
  if (worker.place.position == StepMatcher::kLost || !active_->moves_anything()) return;
  const OpId op(worker.place.position);
  if (active_->streams(op)) engine_->stream();
  moves_.clear();
  active_->op_start(op, moves_);
  apply(moves_, op);
  let_go_of_borders(op.value);
  for (const auto id : active_->used(op))
    if (const auto* tensor = active_->live(id, space_))
      engine_->touch(tensor->address, tensor->bytes);
  worker.interval = active_->interval(op);
  active_->trials().enter(worker.interval, now_us());
  for (const auto id : active_->awaited(op))
    if (const auto* tensor = active_->live(id, space_)) worker.awaited.push_back(*tensor);
}

// Without a budget dead blocks keep their frames. Where tensors will lie elsewhere than before they
// would be held twice.
void Session::reuse_frames() {
  if (summary_.fast_limit_bytes == 0) engine_->reuse_dead_blocks();
}

Bucket* Session::bucket_of_prefix(std::uint64_t prefix) {
  for (const auto& bucket : buckets_)
    if (bucket.get() != active_ && bucket->matcher().prefix(step_ops_) == prefix)
      return bucket.get();
  return nullptr;
}

// Another known kind, if the active one has no such allocation.
Bucket* Session::bucket_of_allocation(std::uint64_t event) {
  if (active_->matcher().allocates(event)) return nullptr;
  for (const auto& bucket : buckets_)
    if (bucket->matcher().allocates(event)) return bucket.get();
  return nullptr;
}

// In mid-step: it turns out to be of that kind.
void Session::change_to(Bucket& bucket) {
  changed_ = true;
  for (auto& border : kept_borders_) border.birth = 0;  // not now: this op may use them
  active_ = &bucket;
  space_.activate(bucket.space_plan());
  bucket.bind(space_);
  bring(bucket);
  bucket.begin_step();
  bucket.trials().begin_step(now_us());
}

void Session::op_tensor(const void* storage, std::size_t bytes, int access) noexcept {
  if (in_child_ || storage == nullptr || this_thread().still) return;
  const Guard guard(lock_);
  auto& worker = here();
  if (!trains(worker)) return;
  auto* tensor = space_.find(storage);
  if (!engine_->guarded() && engine_->contains(storage)) need(worker, tensor, storage, bytes);
  if (tensor != nullptr && (summary_.fast_limit_bytes != 0 || !engine_->guarded()))
    engine_->touch(tensor->address, tensor->bytes);
  if (tensor != nullptr && tensor->bytes == bytes && (access & SENTINEL_OVERWRITE) != 0)
    overwrite(*tensor);
  if (!recording()) return;
  const auto record = tensor != nullptr
                          ? tensor->record
                          : recorder_.foreign(reinterpret_cast<std::uintptr_t>(storage), bytes);
  if (record != StepRecorder::kNone)
    recorder_.op_uses(worker.op, record, (access & SENTINEL_READ) != 0,
                      (access & SENTINEL_WRITE) != 0);
}

// No plan fetches it for this op, unless slow memory is used in place.
void Session::overwrite(LiveTensor& tensor) {
  if (engine_->in_place()) return;
  engine_->overwrite(tensor.address, tensor.bytes);
  if (std::exchange(tensor.wanted, true)) return;
  engine_->promote(tensor.address, tensor.bytes);
}

// A kernel will use it. Without a table entry it is a part of a tensor (of a dlpack capsule, say).
// Of a session that manages nothing any more nothing leaves.
void Session::need(Worker& worker, LiveTensor* tensor, const void* storage, std::size_t bytes) {
  use_device(worker);
  if (tensor != nullptr) {
    if (state_ != State::idle) may_leave(*tensor);
    return worker.awaited.push_back(*tensor);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(storage);
  engine_->touch(address, bytes);
  worker.awaited.push_back({.address = address, .bytes = bytes});
}

void Session::compute_on(void* stream) noexcept {
  if (in_child_) return;
  try {
    engine_->compute_on(stream);
  } catch (const Error& error) {
    refuse(error);
  }
}

void Session::forget_stream(void* stream) noexcept {
  if (in_child_) return;
  try {
    engine_->forget(stream);
  } catch (const Error& error) {
    refuse(error);
  }
}

// The op's inputs are known; it computes as soon as what the plan wants for it is there.
void Session::op_run() noexcept {
  auto& worker = this_thread();
  if (in_child_ || worker.still || !trains(worker)) return;
  if (pages_ && !worker.runs) engine_->kernel(kernel_hash(worker));
  await_promotions(worker);
  worker.awaited.clear();
  if (std::exchange(worker.runs, true) || !record_) return;
  const Guard guard(lock_);
  if (recording() && worker.step == begun_ && !worker.late) recorder_.op_run(worker.op);
}

// Its name, and where its arguments lie (DeepUM, section 3.1).
std::uint64_t Session::kernel_hash(const Worker& worker) {
  auto hash = worker.name;
  for (const auto& tensor : worker.awaited)
    for (const auto word : {std::uint64_t{tensor.address}, tensor.bytes})
      hash = extended(hash, word, OpOrder::sequence);
  return hash;
}

// Without the lock: it may take long. Where slow memory is used in place, what is late may stay.
void Session::await_promotions(const Worker& worker) {
  for (const auto& tensor : worker.awaited) {
    if (engine_->in_place() && leaves(worker, tensor)) continue;
    engine_->await(tensor.address, tensor.bytes);
  }
}

// Whether what is late stays where it is.
bool Session::leaves(const Worker& worker, const LiveTensor& tensor) {
  const Guard guard(lock_);
  if (worker.bucket != active_) return false;
  auto& trials = active_->trials();
  trials.promotion(worker.interval, engine_->arrival(tensor.address, tensor.bytes));
  if (trials.choice(worker.interval) != Choice::leave) return false;
  engine_->leave(tensor.address, tensor.bytes);
  return true;
}

// Which share of the op's accesses, as the profile counted them, were to fast memory.
void Session::count_accesses(const Worker& worker) {
  const auto& dead = worker.died;
  for (const auto& [id, count] : active_->accesses(OpId(worker.place.position))) {
    const auto died = std::find_if(dead.begin(), dead.end(),
                                   [id = id](const auto& d) { return d.first == id.value; });
    const auto* tensor = died == dead.end() ? active_->live(id, space_) : nullptr;
    if (tensor == nullptr && died == dead.end()) continue;
    accesses_ += count;
    fast_accesses_ += count * (tensor != nullptr ? fast_share(*tensor) : died->second);
  }
}

double Session::fast_share(const LiveTensor& tensor) const {
  return static_cast<double>(engine_->fast_bytes(tensor.address, tensor.bytes)) /
         static_cast<double>(tensor.bytes);
}

void Session::op_end() noexcept {
  if (in_child_) return;
  if (std::exchange(this_thread().still, false)) {
    untold(false);
    return;
  }
  if (!trains(this_thread())) return;
  if (record_) engine_->finish();  // to know its time
  const Guard guard(lock_);
  auto& worker = here();
  worker.in_op = false;
  let_device_go(worker);
  if (order_ == OpOrder::sequence || !worker.late) complete(worker);
  if (order_ == OpOrder::any) before_first_op(worker);  // what follows in this thread is not its
  constexpr double kLookUs = 50e3;
  if (within_cgroup_ && now_us() - looked_us_ > kLookUs) keep_within_cgroup(true);
}

void Session::complete(Worker& worker) {
  if (recording()) recorder_.op_end(worker.op);
  if (counted_) drain(worker.op);
  const auto position = worker.place.position;
  if (active_ == nullptr || worker.bucket != active_ || position == StepMatcher::kLost) return;
  if (engine_->in_place() && !diverged_) count_accesses(worker);
  if (!active_->moves_anything()) return;
  moves_.clear();
  active_->op_end(OpId(position), moves_);
  apply(moves_, OpId(position));
}

// A tensor that is not where the plan thinks, because this step differs, is left alone. What the
// program may still write is not copied ahead.
void Session::apply(const std::vector<Move>& moves, OpId op) {
  for (const auto& move : moves) {
    if (move.direction == Direction::copy) continue;
    auto* tensor = active_->live(move.tensor, space_);
    const bool wanted = move.direction == Direction::promote;
    if (tensor == nullptr || tensor->wanted == wanted || tensor->stays) continue;
    tensor->wanted = wanted;
    if (!wanted && !engine_->in_place()) keep_borders(*tensor, op, move.tier > 1);
    if (wanted)
      engine_->promote(tensor->address, tensor->bytes);
    else if (move.tier > 1)
      engine_->sink(tensor->address, tensor->bytes);
    else if (move.direction == Direction::release)
      engine_->release(tensor->address, tensor->bytes);
    else
      engine_->demote(tensor->address, tensor->bytes);
  }
}

// Before a tensor leaves. The plan knows nothing of these frames: they are of those it keeps free.
void Session::keep_borders(const LiveTensor& tensor, OpId op, bool sinks) {
  if (tensor.slot == LiveTensor::kUnplanned || tensor.plan != active_->space_plan()) return;
  const auto granule_bytes = engine_->granule();
  active_->borders().for_each_soon(
      TensorId(tensor.slot), op.value, [&](std::uint64_t offset, std::uint32_t birth) {
        if (kept_borders_.size() >= options_.depth / 2) return;
        const auto granule = tensor.address / granule_bytes * granule_bytes + offset;
        engine_->promote(granule, 1);
        kept_borders_.push_back({granule, birth, sinks});
      });
}

// What began there holds them now, if it did.
void Session::let_go_of_borders(std::uint32_t before) {
  std::erase_if(kept_borders_, [&](const KeptBorder& border) {
    if (border.birth >= before) return false;
    if (border.sinks)
      engine_->sink(border.granule, 1);
    else
      engine_->demote(border.granule, 1);
    return true;
  });
}

}  // namespace sentinel
