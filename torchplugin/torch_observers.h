// The observers of ops: they tell libsentinel of each op's beginning, operands and end, or of
// nothing but its stream while that is enough. They register nothing by themselves.
//
// A part of adaptor.cpp, included there and nowhere else: PyTorch's headers take half a minute to
// compile, so there is one unit.
#pragma once

#include <ATen/record_function.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "torch_compiled.h"
#include "torch_frames.h"
#include "torch_operands.h"
#include "torch_replays.h"
#include "torch_steps.h"

namespace {

Frame start_node(const at::RecordFunction& fn) {
  ++thread.backward;
  thread.trains = true;
  if (const char* layer = layers().of(fn.seqNr()); layer != nullptr) {
    sentinel_layer_start(layer, SENTINEL_BACKWARD);
    thread.layer = layer;
  }
  return Frame::backward;
}

Frame start_user_scope(const at::RecordFunction& fn) {
  if (std::strncmp(fn.name(), "Optimizer.step#", 15) != 0) return Frame::transparent;
  if (thread.optimizer++ == 0) {
    thread.optimizer_name = fn.name();
    thread.backward_around = thread.backward;
    thread.closure = false;
    sentinel_layer_start(fn.name(), SENTINEL_OPTIMIZER);
  }
  return Frame::optimizer;
}

// On a GPU one op runs at a time: in the thread that attached, calls layers or ends steps, or in
// autograd's while that waits. What loads data beside them launches nothing.
bool trains() { return gpu < 0 || thread.trains; }

void want_operands();  // from the next op on

// Beside the node's own kernels: gradients are added up that come from several uses, summed to
// their shape, given to hooks.
Frame start_node_mark() {
  ++thread.backward;
  thread.trains = true;
  return Frame::backward;
}

// A part of the op that runs, whose operands have to be there too: on a GPU each part's, which the
// op may not name.
template <class NameOperands>
Frame begin_part(bool named, NameOperands&& name_operands) {
  ++thread.inside;
  if (!named) return Frame::inner;
  name_stream();
  name_operands();
  sentinel_op_run();
  return Frame::inner;
}

// On the processor a part may write to what the op does not name: a transform or a subclass wraps
// it, or the program's own operator reaches it. What was made from it is made again before.
bool writes_unnamed(const at::RecordFunction& fn) {
  return kind_of(fn).writes && sentinel_wants_recipes() != 0;
}

template <class NameOperands>
Frame begin_op(const char* name, NameOperands&& name_operands) {
  ++thread.inside;
  // Of autograd's thread for a device layers are heard with its ops alone.
  const bool with_layer = gpu >= 0 && thread.backward > 0;
  name_stream();
  sentinel_op_start(name, phase(), with_layer ? thread.layer : nullptr);
  name_operands();
  sentinel_op_run();
  return Frame::op;
}

// In a line that steers no terminal: names and exceptions may say anything.
[[noreturn]] void stop_training(std::string why) {
  for (char& c : why)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') c = '?';
  std::fprintf(stderr, "sentinel: training stopped: %s\n", why.c_str());
  std::fflush(nullptr);
  _exit(125);
}

// Whoever computes it, in threads and on streams of its own, does so where no op is seen: what it
// reads might have left, what it writes be written over.
void refuse_collective(const at::RecordFunction& fn) {
  for (const auto& input : fn.inputs())
    if (is_managed(input))
      stop_training(
          std::string(fn.name()) + " is given tensors of gpu" + std::to_string(gpu) +
          ", which a collective cannot be under Sentinel: copy them to the processor before");
}

// An op that is refused memory and ends well has computed another way: cuDNN takes another
// algorithm where it gets no workspace. Its numbers need not be those of a training with the
// memory.
void note_refused(std::size_t bytes) {
  if (thread.functions > 0 && sentinel_gpu_has_room(bytes)) thread.refused = thread.functions;
}

void start_function(const at::RecordFunction& fn) {
  if (gpu >= 0 && fn.scope() == at::RecordScope::FUNCTION) ++thread.functions;
}

// An exception that passes takes the refusal with it, to an op around this one or to the program,
// which sees it and decides, as it does in a Python function that autograd runs.
void end_function(const at::RecordFunction& fn) {
  if (gpu < 0 || fn.scope() != at::RecordScope::FUNCTION || thread.functions == 0) return;
  const bool refused = thread.refused == thread.functions--;
  if (!refused) return;
  if (std::uncaught_exceptions() == 0 && fn.operator_name())
    stop_training(std::string(fn.name()) +
                  " was refused memory within the budget and has gone on another way, which may "
                  "give other numbers than with the memory; raise --fast");
  thread.refused = std::uncaught_exceptions() == 0 ? 0 : thread.functions;
}

Frame start_op(const at::RecordFunction& fn) {
  if (gpu >= 0 && kind_of(fn).collective) refuse_collective(fn);
  if (thread.inside > 0) {
    if (recording.on()) recording.begin_call(fn);
    return begin_part(gpu >= 0 || writes_unnamed(fn), [&] { name_inputs(fn); });
  }
  const auto& kind = kind_of(fn);
  if (kind.node) return start_node_mark();
  if (kind.foreign) reach_inputs(fn, kind.collective);
  if (kind.graph) follow_graph(fn, kind);
  if (!kind.op || !trains()) return Frame::transparent;
  follow_passes(fn, kind);
  begin_layer_at(fn, kind);
  const bool overwrites = kind.fills && !fn.inputs().empty() && fn.inputs()[0].isTensor() &&
                          fills_storage(fn.inputs()[0].toTensor());
  if (!in_backward()) layers().note(fn.seqNr());
  return begin_op(kind.lasting != nullptr ? kind.lasting : fn.name(), [&] {
    if (overwrites) {
      need_operands();
      name_tensor(fn.inputs()[0].toTensor(), SENTINEL_WRITE | SENTINEL_OVERWRITE);
    } else if (sentinel_wants_tensors()) {
      kind.kernel ? name_kernel_operands() : name_inputs(fn);
      want_operands();
    }
    // What it writes cannot be known.
    if (kind.kernel && kernel_operands.empty() && sentinel_wants_recipes()) sentinel_remake_all();
    if (sentinel_op_wants_recipe()) recording.begin_op(fn);
  });
}

void start_frame(const at::RecordFunction& fn) {
  const auto scope = fn.scope();
  thread.frames.push_back(scope == at::RecordScope::BACKWARD_FUNCTION ? start_node(fn)
                          : scope == at::RecordScope::USER_SCOPE      ? start_user_scope(fn)
                                                                      : start_op(fn));
}

Frame leave_frame() {
  if (thread.frames.empty()) return Frame::transparent;
  const auto frame = thread.frames.back();
  thread.frames.pop_back();
  if (frame == Frame::backward && --thread.backward == 0) unmarked.backward_ended();
  if (frame == Frame::optimizer) --thread.optimizer;
  if (frame == Frame::inner || frame == Frame::op) --thread.inside;
  return frame;
}

void end_frame(const at::RecordFunction& fn) {
  const auto frame = leave_frame();
  if (recording.on() && (frame == Frame::op || frame == Frame::inner)) recording.end_call(fn);
  if (frame != Frame::op) return;
  recording.end_op();
  if (gpu >= 0)  // what it made is its outputs, and may leave; not so what a library keeps
    for (const c10::IValue& output : fn.outputs()) name_tensors(output, SENTINEL_WRITE);
  sentinel_op_end();
}

// PyTorch drops what an observer throws and runs the op all the same. On a GPU what it uses need
// not be there then: training ends instead. On the processor every access is served, and the op is
// one that is not told.
void not_told(const at::RecordFunction& fn, const std::exception& error) noexcept {
  if (gpu < 0) return;
  const std::string what = error.what();  // behind it PyTorch tells where it was thrown
  const auto said = what.substr(0, what.find("\nException raised from"));
  const bool python = said.empty();  // its text would have to be asked for
  stop_training(std::string("what ") + fn.name() + " uses cannot be told (" +
                (python ? "a Python exception" : said) +
                "); give it tensors that have a device and a storage, or train on the processor");
}

// While ops need not be told: of nothing but the stream on which they are launched. It needs no
// inputs, which PyTorch would box for it. What is told again within one of these ops is a part of
// it.
std::unique_ptr<at::ObserverContext> start_untold(const at::RecordFunction& fn) {
  if (in_child) return nullptr;
  start_function(fn);
  if (fn.scope() == at::RecordScope::BACKWARD_FUNCTION) thread.trains = true;
  if (std::strncmp(fn.name(), kCollective, sizeof kCollective - 1) == 0)
    stop_training(std::string(fn.name()) +
                  ": what it is given cannot be seen now; make process groups from Python");
  if (thread.inside++ > 0) return nullptr;
  if (sentinel_op_untold(1) != 0)  // its observer was chosen before another thread wanted memory
    stop_training(
        std::string(fn.name()) +
        ": another thread needs memory just as it begins, and what it uses cannot be named "
        "any more; give the program more of the device's memory");
  if (thread.trains) name_stream();
  return nullptr;
}

void end_untold(const at::RecordFunction& fn, at::ObserverContext*) {
  if (in_child) return;
  end_function(fn);
  if (--thread.inside == 0) sentinel_op_untold(0);
}

// One of the observers is on, or none. On the processor nobody observes what need not be told. Ops
// of a step that follows a plan are told by name alone: their operands, which PyTorch would box,
// and autograd's nodes, whose names it would make, are not asked for. They are exchanged at a
// step's border, and for what begins next when more is wanted in between. Meanwhile two may see an
// op.
class Observers {
 public:
  enum Told : char { kNothing, kNames, kAll, kOutputs };

  void tell_always() {
    always_ = true;
    choose();
  }
  // What is on now is `kAll`. A null: nobody observes.
  void add(Told told, at::RecordFunctionCallback callback) {
    handles_[told] = at::addGlobalCallback(std::move(callback));
    if (told != kAll) at::disableCallback(*handles_[told]);
  }
  // An op or a pass was told whose operands a plan relies on, in this step and in all others.
  void need_operands() { operands_ = true; }
  Told told() const { return told_.load(std::memory_order_relaxed); }
  void choose() {
    const auto wanted = this->wanted();
    if (wanted == told()) return;
    const std::lock_guard guard(lock_);
    if (wanted == told_ || !handles_[kAll]) return;
    if (handles_[wanted]) at::reenableCallback(*handles_[wanted]);
    if (handles_[told_]) at::disableCallback(*handles_[told_]);
    told_ = wanted;
  }

 private:
  Told wanted() const {
    if (!always_ && sentinel_wants_ops() == 0) return kNothing;
    if (handles_[kOutputs] && sentinel_wants_recipes() != 0) return kOutputs;
    return handles_[kNames] && !operands_ && sentinel_wants_tensors() == 0 ? kNames : kAll;
  }

  std::mutex lock_;
  std::atomic<Told> told_ = kAll;
  std::atomic<bool> always_ = false, operands_ = false;
  std::array<std::optional<at::CallbackHandle>, 4> handles_;
};
Observers observers;

void need_operands() { observers.need_operands(); }

// On the processor, after each allocation: it may be the one by which memory gets short.
void made_memory() {
  if (observers.told() == Observers::kNothing) observers.choose();
}

// A found step begins. Its end is found by operands, so that names alone never do.
void want_recipes() {
  if (sentinel_wants_recipes() != 0) observers.choose();
}

// What follows is by demand, so that operands are wanted.
void want_operands() {
  if (observers.told() == Observers::kNames) observers.choose();
}

std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& fn) {
  if (in_child) return nullptr;
  start_function(fn);
  const Depths before = thread;
  try {
    start_frame(fn);
  } catch (const std::exception& error) {
    not_told(fn, error);
    recording.drop();
    static_cast<Depths&>(thread) = before;
    thread.frames.push_back(Frame::transparent);
  }
  return nullptr;
}

void end(const at::RecordFunction& fn, at::ObserverContext*) {
  if (in_child) return;
  end_function(fn);
  try {
    end_frame(fn);
  } catch (const std::exception& error) {
    recording.drop();
    not_told(fn, error);
  }
}

}  // namespace
