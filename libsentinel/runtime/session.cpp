#include "runtime/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/failure.h"
#include "base/text.h"
#include "engine/gpu/pageable_engine.h"
#include "engine/gpu/pool_engine.h"
#include "engine/io/slow_file.h"
#include "engine/numa/node_engine.h"
#include "engine/ssd/frame_engine.h"
#include "measure/measure.h"
#include "runtime/gpu_counting.h"
#include "runtime/workable.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

const std::uint64_t prelude_name = name_hash(StepRecorder::kPrelude);

std::shared_ptr<gpu::Driver> driver_of(const SessionOptions& options) {
  auto driver = !options.gpu || options.driver ? options.driver : open_gpu(options);
  require_counting(options, driver.get());
  return driver;
}

std::unique_ptr<Engine> make_engine(const SessionOptions& options, gpu::Driver* driver) {
  if (options.gpu_memory == kPageable)
    return std::make_unique<gpu::PageableEngine>(*driver, options.arena_bytes);
  if (driver != nullptr) {
    const bool managed = options.gpu_memory == "managed";
    const auto free = driver->free_bytes(), spare = gpu::spare_of(free);
    gpu::PoolOptions pools{.arena_bytes = options.arena_bytes,
                           .granule_bytes = options.granule_bytes,
                           .spare_bytes = spare,
                           .host = host_options(options)};
    if (managed) {  // all of it is within the device's memory, wherever it lies
      pools.arena_bytes =
          std::min(options.arena_bytes, round_down(free - spare, options.granule_bytes));
      pools.spare_bytes = 0;
    }
    return std::make_unique<gpu::PoolEngine>(*driver, pools);
  }
  if (options.nodes) {
    if (!on_one_node(options.inject)) check_tiers(*options.nodes, numa_nodes());
    return std::make_unique<NodeEngine>(NodeEngineOptions{.nodes = *options.nodes,
                                                          .granule_bytes = options.granule_bytes,
                                                          .arena_bytes = options.arena_bytes},
                                        make_node_calls(options.inject));
  }
  return std::make_unique<FrameEngine>(EngineOptions{.slow_directory = options.slow_directory,
                                                     .allow_memory_tier = options.allow_tmpfs,
                                                     .io = parse_io_backend(options.io),
                                                     .use_move = options.move != "copy",
                                                     .depth = options.depth,
                                                     .inject = options.inject,
                                                     .checksums = options.checksums,
                                                     .arena_bytes = options.arena_bytes});
}

}  // namespace

Session::Session(SessionOptions options, std::string framework, OpOrder order)
    : options_(with_gpu_memory(std::move(options), known_machine)),
      driver_(driver_of(options_)),
      framework_(std::move(framework)),
      order_(order),
      engine_(make_engine(options_, driver_.get())),
      unmanaged_([this](int device) { return open_unmanaged(device); },
                 [this](int device, const auto& why) { tell_of_kept(device, why); }),
      space_(*engine_) {
  this_thread().trains = true;
  if (driver_) options_.granule_bytes = engine_->granule();  // what the device has them made of
  if (driver_ && options_.mode == Mode::arena)
    throw Error("on a GPU nothing can be had without its ops: SENTINEL_MODE=arena is not for it");
  if (driver_ && !gpu::counted(options_))
    source_refused_ = "counting a GPU's accesses page by page was not asked for";
  summary_.policy = options_.policy;
  if (options_.gpu)
    summary_.tiers = {fmt::format("gpu{}", *options_.gpu), "host",
                      options_.host_bytes != 0 ? options_.slow_directory : ""};
  if (options_.nodes)
    summary_.tiers = {fmt::format("node{}", options_.nodes->fast),
                      fmt::format("node{}", options_.nodes->slow)};
  summary_.rated_tb = options_.rated_tb;
  summary_.drives = split_directories(options_.slow_directory).size();
  summary_.granule_bytes = options_.granule_bytes;
  if (options_.mode == Mode::run) {
    require_policy(options_);
    if (driver_) machine_ = machine();  // while the device still has room to be measured
    hold_warmup_budget();
    files_wait_ = within_cgroup_ && options_.fast.unlimited() && !options_.profile.empty();
    if (!files_wait_) start_from_files();
  }
  if (options_.mode == Mode::arena) {
    state_ = State::idle;
    wants_tensors_ = false;
  }
  if (will_count()) share_memory();
  begin_step();
}

// Never destroyed: a thread frees tensors while it takes down what is its own.
Session::Worker& Session::this_thread() {
  static thread_local Worker* const worker = new Worker;
  return *worker;
}

void Session::before_first_op(Worker& worker) {
  worker.step = begun_;
  worker.bucket = active_;
  worker.place = prelude_;
  worker.op = StepRecorder::kPreludeOp;
  worker.name = prelude_name;
}

// The calling thread's op, if it is one of this step.
Session::Worker& Session::here() {
  auto& worker = this_thread();
  if (worker.step != begun_) {
    before_first_op(worker);
    worker.late = worker.in_op;
  }
  if (worker.bucket != active_) worker.place = {};
  return worker;
}

void Session::model(const char* name, std::size_t batch) noexcept {
  const Guard guard(lock_);
  if (!model_.empty()) return;
  model_ = name;
  batch_ = batch;
}

void Session::unsupported(const char* what) noexcept {
  if (in_child_) return;
  const Guard guard(lock_);
  if (state_ == State::idle) return;
  stir();
  end_counting();
  say(fmt::format("{} is not supported yet; training goes on unmanaged, with all of its memory",
                  what));
  let_go_of_borders(UINT32_MAX);
  pages_ = false;
  if (!engine_->guarded()) engine_->page(nullptr);
  state_ = State::idle;
  active_ = nullptr;
  wants_tensors_ = within_cgroup_ = false;
  engine_->set_budget(0);
  if (engine_->guarded()) return;
  space_.table().for_each([this](LiveTensor& tensor) {
    engine_->await(tensor.address, tensor.bytes);
    if (!tensor.stays) stay(tensor);
  });
}

// What the interpreter's end frees has been freed by now.
void Session::program_ends() noexcept {
  if (in_child_) return;
  engine_->program_ends();
  unmanaged_.settle();
}

// Called once, at the interpreter's end, or the program's. What was recorded of an unfinished
// profile is kept.
void Session::finish(const char* reason) noexcept {
  if (in_child_) return;
  try {
    const Guard guard(lock_);
    if (std::exchange(finished_, true)) return;
    if (state_ == State::profiling) {
      end_counting();
      store(take_profile(false, reason));
    }
    if (!options_.summary.empty() && steps_ > 0) write_summary();  // others may train
    if (options_.mode == Mode::record && state_ == State::warmup && steps_ > 0)
      say(fmt::format(
          "the program ended after {} steps, before one could be profiled; let it run for at "
          "least {}",
          steps_, kMostWarmups + 1));
    if (options_.mode == Mode::run && summary_.steady_ms() > 0)
      say(fmt::format("{} steps; steady step {:.1f} ms{}; fast memory {} of {} unlimited", steps_,
                      summary_.steady_ms(),
                      summary_.predicted_us > 0
                          ? fmt::format(" (predicted {:.1f} ms)", summary_.predicted_us / 1e3)
                          : "",
                      print_bytes(summary_.peak_fast_bytes),
                      print_bytes(summary_.peak_unlimited_bytes)));
    if (options_.mode == Mode::run && summary_.drive_days() > 0)
      say(fmt::format(
          "{} written to {} a step; drives rated for {} TB each bear that for {:.3g} days",
          print_bytes(static_cast<std::uint64_t>(summary_.steady_written_bytes())),
          options_.slow_directory, summary_.rated_tb, summary_.drive_days()));
    state_ = State::idle;
  } catch (const std::exception& error) {
    say(in_words(error));
  }
}

void Session::write_summary() const {
  std::vector<std::vector<IntervalRow>> intervals;
  for (const auto& bucket : buckets_) intervals.push_back(bucket->trials().rows());
  summary_.write(options_.summary, intervals);
}

void Session::before_fork() noexcept {
  if (in_child_) return engine_->before_fork();
  lock_.lock();
  if (options_.gpu && options_.io == kCuFile && !std::exchange(warned_of_fork_, true))
    say("this program forks while the GPU reads and writes the file itself (--io cufile): a child "
        "may do nothing but execute another program. Give DataLoaders with workers "
        "multiprocessing_context=\"spawn\"");
  if (engine_->counting()) end_counting();  // shared memory would be shared with the child
  unmanaged_.before_fork();
  engine_->before_fork();
}

void Session::after_fork_in_parent() noexcept {
  engine_->after_fork_in_parent();
  if (in_child_) return;
  unmanaged_.after_fork();
  lock_.unlock();
}

void Session::after_fork_in_child() noexcept {
  engine_->after_fork_in_child();
  if (!in_child_) {
    unmanaged_.after_fork();
    lock_.unlock();
  }
  in_child_ = true;
  wants_tensors_ = false;
}

void Session::say(const std::string& text) const {
  if (!options_.quiet) std::fprintf(stderr, "sentinel: %s\n", printable(text).c_str());
}

void Session::refuse(const std::exception& error) {
  std::fprintf(stderr, "sentinel: %s\n", in_words(error).c_str());
  std::fflush(nullptr);
  _exit(125);
}

}  // namespace sentinel
