// The session's hot path: what happens at each op.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "execute/session.h"
#include "sentinel/adaptor.h"

namespace sentinel {

void Session::layer(const char* name, Phase phase) noexcept {
  if (in_child_) return;
  const Guard guard(lock_);
  if (training_thread() && recording() && !marked_layers_) recorder_.layer(name, phase);
}

// A layer that ends lets the next begin. A program without a framework's ops gets one op a layer.
void Session::layer_end() noexcept {
  if (in_child_) return;
  Guard guard(lock_);
  trains_here_now();
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
    op_start("layer", Phase::forward);
    op_run();
  }
}

void Session::op_start(const char* name, Phase phase) noexcept {
  if (in_child_ || !training_thread()) return;
  const Guard guard(lock_);
  const auto prefix = step_hash_;
  const auto hash = names_.hash(name);
  step_hash_ = sentinel::step_hash(step_hash_, hash);
  ++step_ops_;
  if (recording()) recorder_.op_start(name, phase);
  engine_->tick();
  awaited_.clear();
  died_.clear();
  if (active_ == nullptr) return;
  follow(active_->matcher().op(hash), prefix);
}

// Whether births are those of the profiled step: until the step differs, and again as soon as it
// has been as profiled for a while. Not so in the first steps, in which optimizers make what stays;
// and while profiling each tensor has pages of its own.
bool Session::on_track() const {
  constexpr std::uint32_t kOps = 16;
  if (state_ == State::profiling) return false;
  if (!diverged_) return true;
  return state_ == State::steady && active_->matcher().followed() >= kOps;
}

// The step is at `position` of the active bucket's. What happened before decides whether it still
// is that kind of step at all, or another known one.
void Session::follow(std::uint32_t position, std::uint64_t prefix) {
  if (!diverged_ &&
      (position == StepMatcher::kLost || active_->matcher().prefix(position) != prefix)) {
    if (auto* other = bucket_of_prefix(prefix); other != nullptr) {
      active_ = other;
      space_.activate(other->space_plan());
      other->bind(space_);
      bring(*other);
      other->begin_step();
      other->trials().begin_step(now_us());
      other->matcher().jump(position = step_ops_);
    } else {
      diverged_ = true;
      wants_tensors_ = true;  // by demand from here on: what is used now should stay
      reuse_frames();
    }
  }
  if (position == StepMatcher::kLost || !active_->moves_anything()) return;
  const OpId op(position);
  moves_.clear();
  active_->op_start(op, moves_);
  apply(moves_);
  for (const auto id : active_->used(op))
    if (const auto* tensor = active_->live(id, space_))
      engine_->touch(tensor->address, tensor->bytes);
  awaited_interval_ = active_->interval(op);
  active_->trials().enter(awaited_interval_, now_us());
  for (const auto id : active_->awaited(op))
    if (const auto* tensor = active_->live(id, space_)) awaited_.push_back(*tensor);
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

void Session::op_tensor(const void* storage, std::size_t bytes, int access) noexcept {
  if (in_child_ || !training_thread() || storage == nullptr) return;
  const Guard guard(lock_);
  auto* tensor = space_.find(storage);
  if (tensor != nullptr && summary_.fast_limit_bytes != 0)
    engine_->touch(tensor->address, tensor->bytes);
  if (tensor != nullptr && tensor->bytes == bytes && (access & SENTINEL_OVERWRITE) != 0)
    overwrite(*tensor);
  if (!recording()) return;
  const auto record = tensor != nullptr
                          ? tensor->record
                          : recorder_.foreign(reinterpret_cast<std::uintptr_t>(storage), bytes);
  if (record != StepRecorder::kNone)
    recorder_.op_uses(record, (access & SENTINEL_READ) != 0, (access & SENTINEL_WRITE) != 0);
}

// No plan fetches it for this op, unless slow memory is used in place.
void Session::overwrite(LiveTensor& tensor) {
  if (engine_->in_place()) return;
  engine_->overwrite(tensor.address, tensor.bytes);
  if (std::exchange(tensor.wanted, true)) return;
  engine_->promote(tensor.address, tensor.bytes);
}

// The op's inputs are known; it computes as soon as what the plan wants for it is there.
void Session::op_run() noexcept {
  if (in_child_ || !training_thread()) return;
  await_promotions();
  if (!record_) return;
  const Guard guard(lock_);
  if (recording()) recorder_.op_run();
}

// Without the lock: it may take long. Where slow memory is used in place, what is late may stay.
void Session::await_promotions() {
  for (const auto& tensor : awaited_) {
    if (engine_->in_place()) {
      auto& trials = active_->trials();
      trials.promotion(awaited_interval_, engine_->arrival(tensor.address, tensor.bytes));
      if (trials.choice(awaited_interval_) == Choice::leave) {
        engine_->leave(tensor.address, tensor.bytes);
        continue;
      }
    }
    engine_->await(tensor.address, tensor.bytes);
  }
}

// Which share of the op's accesses, as the profile counted them, were to fast memory.
void Session::count_accesses(Bucket& bucket, OpId op) {
  for (const auto& [id, count] : bucket.accesses(op)) {
    const auto died = std::find_if(died_.begin(), died_.end(),
                                   [id = id](const auto& d) { return d.first == id.value; });
    const auto* tensor = died == died_.end() ? bucket.live(id, space_) : nullptr;
    if (tensor == nullptr && died == died_.end()) continue;
    accesses_ += count;
    fast_accesses_ += count * (tensor != nullptr ? fast_share(*tensor) : died->second);
  }
}

double Session::fast_share(const LiveTensor& tensor) const {
  return static_cast<double>(engine_->fast_bytes(tensor.address, tensor.bytes)) /
         static_cast<double>(tensor.bytes);
}

void Session::op_end() noexcept {
  if (in_child_ || !training_thread()) return;
  const Guard guard(lock_);
  if (recording()) recorder_.op_end();
  if (counted_) drain();
  if (active_ == nullptr) return;
  const auto position = active_->matcher().position();
  if (position == StepMatcher::kLost) return;
  if (engine_->in_place() && !diverged_) count_accesses(*active_, OpId(position));
  if (!active_->moves_anything()) return;
  moves_.clear();
  active_->op_end(OpId(position), moves_);
  apply(moves_);
}

// A tensor that is not where the plan thinks, because this step differs, is left alone. What the
// program may still write is not copied ahead.
void Session::apply(const std::vector<Move>& moves) {
  for (const auto& move : moves) {
    if (move.direction == Direction::copy) continue;
    auto* tensor = active_->live(move.tensor, space_);
    const bool wanted = move.direction == Direction::promote;
    if (tensor == nullptr || tensor->wanted == wanted) continue;
    tensor->wanted = wanted;
    if (wanted)
      engine_->promote(tensor->address, tensor->bytes);
    else if (move.direction == Direction::release)
      engine_->release(tensor->address, tensor->bytes);
    else
      engine_->demote(tensor->address, tensor->bytes);
  }
}

}  // namespace sentinel
