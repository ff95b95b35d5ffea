// Makes the engine of the options, and answers the program's own calls under the lock.
#include "runtime/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/failure.h"
#include "base/of_thread.h"
#include "base/text.h"
#include "engine/gpu/gpu_engine.h"
#include "engine/gpu/pageable_engine.h"
#include "engine/io/slow_file.h"
#include "engine/numa/numa_engine.h"
#include "engine/ssd/ssd_engine.h"
#include "measure/measure.h"
#include "runtime/limit/arena_size.h"
#include "runtime/limit/gpu_counting.h"
#include "runtime/limit/workable.h"
#include "runtime/profiling/counting.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

std::shared_ptr<gpu::Driver> driver_of(const SessionOptions& options) {
  auto driver = !options.gpu.device || options.gpu.driver ? options.gpu.driver : open_gpu(options);
  require_counting(options, driver.get());
  return driver;
}

std::string of_engine(const std::string& inject) {
  return Spoiling::is_of_replays(inject) ? "" : inject;
}

std::unique_ptr<Engine> make_engine(const SessionOptions& options, gpu::Driver* driver) {
  if (options.gpu.memory == kPageable)
    return std::make_unique<gpu::PageableEngine>(*driver, options.tiers.arena_bytes);
  if (driver != nullptr) {
    const bool managed = options.gpu.memory == "managed";
    const auto free = driver->free_bytes(), spare = gpu::spare_of(free);
    gpu::PoolOptions pools{.arena_bytes = options.tiers.arena_bytes,
                           .granule_bytes = options.tiers.granule_bytes,
                           .spare_bytes = spare,
                           .host = host_options(options)};
    if (managed) {  // all of it is within the device's memory, wherever it lies
      pools.arena_bytes = std::min(options.tiers.arena_bytes,
                                   round_down(free - spare, options.tiers.granule_bytes));
      pools.spare_bytes = 0;
    }
    return std::make_unique<gpu::GpuEngine>(*driver, pools);
  }
  const bool one_node = on_one_node(options.moves.inject);
  if (options.tiers.nodes && !one_node) check_tiers(*options.tiers.nodes, numa_nodes());
  if (options.tiers.nodes && !options.tiers.three())
    return std::make_unique<NumaEngine>(
        NumaEngineOptions{.nodes = *options.tiers.nodes,
                          .granule_bytes = options.tiers.granule_bytes,
                          .arena_bytes = options.tiers.arena_bytes},
        make_node_calls(options.moves.inject));
  const bool three = options.tiers.three();
  return std::make_unique<SsdEngine>(EngineOptions{
      .slow_directory = options.tiers.slow_directory,
      .allow_memory_tier = options.tiers.allow_tmpfs,
      .io = parse_io_backend(options.moves.io),
      .use_move = options.moves.move != "copy",
      .bars = may_bar(options),
      .depth = options.moves.depth,
      .inject = three && one_node ? "" : of_engine(options.moves.inject),
      .checksums = options.moves.checksums,
      .node_calls = three ? make_node_calls(one_node ? options.moves.inject : "") : nullptr,
      .nodes = options.tiers.nodes.value_or(NodeTiers{}),
      .node_bytes = options.tiers.node_bytes,
      .arena_bytes = options.tiers.arena_bytes});
}

}  // namespace

Session::Session(SessionOptions options, std::string framework, OpOrder order,
                 const sentinel_replayer* replayer)
    : options_(with_gpu_memory(with_fitting_arena(std::move(options)), known_machine)),
      voice_(options_.quiet),
      driver_(driver_of(options_)),
      order_(order),
      engine_(make_engine(options_, driver_.get())),
      others_(options_, *engine_, voice_),
      training_(options_, std::move(framework), order, *engine_, driver_.get(), voice_),
      replays_(*engine_, training_, lock_, order, options_.moves.inject),
      timer_([this] {
        const Guard guard(lock_);
        if (!finished_) training_.follower().moves().issue_due();
      }) {
  training_.follower().moves().put_off_with(timer_);
  this_thread().trains = true;
  if (driver_)
    options_.tiers.granule_bytes = engine_->granule();  // what the device has them made of
  if (driver_ && options_.mode == Mode::arena)
    throw Error("on a GPU nothing can be had without its ops: SENTINEL_MODE=arena is not for it");
  if (!options_.rank_note.empty()) voice_.say(options_.rank_note);
  if (const auto text = told_of_arena(options_); !text.empty()) voice_.say(text);
  if (replayer != nullptr) replays_.remaking().use(*replayer);
  training_.begin(driver_.get(), replays_.remaking());
}

Session::Worker& Session::this_thread() { return of_thread<Worker>(); }

void Session::before_first_op(Worker& worker) {
  worker.step = training_.begun();
  worker.op = StepRecorder::kPreludeOp;
  training_.follower().before_first_op(worker.plan);
}

// The calling thread's op, if it is one of this step.
Session::Worker& Session::here() {
  auto& worker = this_thread();
  if (worker.step != training_.begun()) {
    before_first_op(worker);
    worker.late = worker.in_op;
  }
  training_.follower().stay_with_step(worker.plan);
  return worker;
}

void Session::model(const char* name, std::size_t batch) noexcept {
  const Guard guard(lock_);
  training_.profile().program(name, batch);
}

void Session::unsupported(const char* what) noexcept {
  if (in_child_) return;
  const auto guard = replays_.remaking().all_there();
  training_.give_up(fmt::format(
      "{} is not supported yet; training goes on unmanaged, with all of its memory", what));
}

// What the interpreter's end frees has been freed by now.
void Session::program_ends() noexcept {
  if (in_child_) return;
  if (auto* device = engine_->device()) device->program_ends();
  others_.settle();
}

// Called once, at the interpreter's end, or the program's.
void Session::finish(const char* reason) noexcept {
  if (in_child_) return;
  try {
    const auto guard = replays_.remaking().all_there();
    if (std::exchange(finished_, true)) return;
    replays_.remaking().settle(true);
    training_.finish(reason);
  } catch (const std::exception& error) {
    voice_.say(in_words(error));
  }
}

void Session::before_fork() noexcept {
  if (in_child_) return engine_->before_fork();
  replays_.remaking().settle(true);
  replays_.remaking().all_there().release();  // and the lock is held
  static bool warned = false;
  if (options_.gpu.device && options_.moves.io == kCuFile && !std::exchange(warned, true))
    voice_.say(
        "this program forks while the GPU reads and writes the file itself (--io cufile): a child "
        "may do nothing but execute another program. Give DataLoaders with workers "
        "multiprocessing_context=\"spawn\"");
  if (engine_->counting())
    training_.counting().end();  // shared memory would be shared with the child
  others_.before_fork();
  engine_->before_fork();
}

void Session::after_fork_in_parent() noexcept {
  engine_->after_fork_in_parent();
  if (in_child_) return;
  others_.after_fork_in_parent();
  replays_.remaking().settle(finished_);
  lock_.unlock();
}

void Session::after_fork_in_child() noexcept {
  engine_->after_fork_in_child();
  if (!in_child_) {
    others_.after_fork_in_child();
    lock_.unlock();
  }
  in_child_ = true;
  replays_.remaking().ends();
  training_.recording().ask_for_tensors(false);
}

// With the lock held.
void Session::end_step() {
  auto& worker = this_thread();
  worker.trains = true;
  worker.plan.died.clear();
  training_.end_step();
  replays_.step_ended();
}

// A forked process trains. It shares the tally with its parent.
void Session::trains_unmanaged() noexcept {
  if (std::exchange(tells_of_child_, false) == false) return;
  training_.log().tally().gives_up();
  voice_.say(
      "a process that was forked trains: it goes on unmanaged, with all of its memory; one that "
      "multiprocessing starts by \"spawn\" is managed");
}

void Session::step_end() noexcept {
  if (in_child_) return trains_unmanaged();
  try {
    const auto guard = replays_.remaking().step_ends();
    marks_steps_ = true;
    end_step();
  } catch (const std::exception& error) {
    refuse(error);
  }
}

bool Session::step_found() noexcept {
  if (in_child_) return false;
  try {
    const auto guard = replays_.remaking().step_ends();
    if (!marks_steps_) end_step();
    return !marks_steps_;
  } catch (const std::exception& error) {
    refuse(error);
  }
}

int Session::start_profile() {
  const auto guard = replays_.remaking().all_there();
  return training_.start_profile();
}

int Session::end_profile() {
  const auto guard = replays_.remaking().all_there();
  return training_.end_profile();
}

// Before a profile tells the peak, the most that was alive until now is taken for it.
std::uint64_t Session::device_budget() {
  const Guard guard(lock_);
  return training_.limit().device_budget(training_.space().most_live_bytes());
}

bool Session::device_has_room(std::size_t bytes) {
  const Guard guard(lock_);
  return !in_child_ && training_.limit().device_has_room(training_.space().live_bytes(), bytes);
}

}  // namespace sentinel
