// A profiled step, trained under a plan on an engine of pools whose device is virtual_gpu.h's: what
// a session does at each op, without a framework and without memory. Tells how long a steady step
// takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "engine/gpu/gpu_engine.h"
#include "runtime/step/bucket.h"
#include "runtime/step/space.h"
#include "sentinel/analysis.h"
#include "sentinel/policy.h"
#include "sim/simulator.h"
#include "unit/engine/gpu/virtual_gpu.h"

namespace sentinel::rig {

// The device whose copies take so long, as planners see it.
inline Machine virtual_machine(const gpu::VirtualCosts& costs, std::uint64_t granule) {
  const double bw = 1e6 * costs.bytes_per_us;
  Machine machine{
      .name = "virtual", .source = "stated", .granule_bytes = granule, .exclusive = true};
  machine.tiers.push_back(
      {.name = "hbm", .read_bw = 2e12, .write_bw = 2e12, .byte_addressable = true});
  machine.tiers.push_back({.name = "host", .read_bw = bw, .write_bw = bw});
  return machine;
}

// As a session on a GPU records it: sizes are multiples of the engine's alignment. What a trace has
// there at first and then no more, and nothing in its place for the next step, stays here.
inline Profile for_gpu(Profile profile) {
  std::vector<bool> remade(profile.tensors.size());
  for (const auto& left : plan::left_behind(profile)) remade[left.before.index()] = true;
  for (std::size_t t = 0; t < profile.tensors.size(); ++t)
    if (auto& tensor = profile.tensors[t]; !tensor.alloc_op && !remade[t]) tensor.free_op.reset();
  for (auto& tensor : profile.tensors) {
    tensor.bytes = round_up(tensor.bytes, gpu::kAlignment);
    tensor.offset.reset();
  }
  profile.accesses.clear();
  return profile;
}

// What must be away when most is alive goes out in the forward pass and comes in after it, each at
// the link's rate and overlapped perfectly.
inline double simple_bound_us(const Profile& profile, std::uint64_t budget, double bytes_per_us) {
  const auto most = peak_live_bytes(profile);
  const double away = static_cast<double>(most - std::min(most, budget)) / bytes_per_us;
  double forward = 0, rest = 0;
  for (const auto& op : profile.ops) (op.phase == Phase::forward ? forward : rest) += op.us;
  return std::max(forward, away) + std::max(rest, away);
}

struct StepOutcome {
  double step_us = 0;  // of the last step
  std::uint64_t in_bytes = 0, out_bytes = 0, faults = 0;
  gpu::VirtualGpu::Counts counts;
  std::vector<std::string> complaints;
};

class VirtualTraining {
 public:
  VirtualTraining(const Profile& profile, const Plan& plan, const gpu::VirtualCosts& costs,
                  std::uint64_t granule, std::uint64_t queued = gpu::PoolOptions().queued)
      : gpu_(costs),
        engine_(std::make_unique<gpu::GpuEngine>(
            gpu_, gpu::PoolOptions{.arena_bytes = arena_for(profile, plan),
                                   .granule_bytes = granule,
                                   .queued = queued})),
        space_(*engine_),
        stream_(gpu_.make_stream()),
        bucket_(profile, plan, OpOrder::any, space_),
        profile_(bucket_.profile()),
        at_(profile.tensors.size()),
        born_(profile.ops.size()),
        freed_(profile.ops.size()) {
    gpu_.await_others(3);
    waits_us.resize(profile_.ops.size());
    engine_->compute_on(stream_);
    for (std::uint32_t t = 0; t < at_.size(); ++t) {
      const auto& tensor = profile_.tensors[t];
      if (tensor.foreign || tensor.bytes == 0) continue;
      if (tensor.alloc_op) born_[tensor.alloc_op->index()].push_back(t);
      if (tensor.free_op) freed_[tensor.free_op->index()].push_back(t);
    }
    left_ = plan::left_behind(profile_);
    engine_->set_budget(plan.fast_bytes);
    begin();
  }
  ~VirtualTraining() {
    gpu_.release();
    engine_.reset();
  }

  std::vector<double> waits_us;  // per op, in the last step

  // The last of so many steps.
  StepOutcome train(int steps) {
    StepOutcome outcome;
    for (int i = 0; i < steps; ++i) {
      const auto before = engine_->counters();
      const auto counts = gpu_.counts;
      const double begin = gpu_.end_of(stream_);
      step();
      const auto after = engine_->counters();
      outcome.step_us = gpu_.end_of(stream_) - begin;
      outcome.in_bytes = after.promoted_bytes - before.promoted_bytes;
      outcome.out_bytes = after.demoted_bytes - before.demoted_bytes;
      outcome.faults = after.demand_faults - before.demand_faults;
      outcome.counts = {.maps = gpu_.counts.maps - counts.maps,
                        .unmaps = gpu_.counts.unmaps - counts.unmaps,
                        .mapped = gpu_.counts.mapped - counts.mapped,
                        .copies = gpu_.counts.copies - counts.copies,
                        .events = gpu_.counts.events - counts.events,
                        .created = gpu_.counts.created - counts.created,
                        .held_up = gpu_.counts.held_up - counts.held_up};
    }
    outcome.complaints = gpu_.complaints();
    return outcome;
  }

 private:
  struct Border {
    std::uintptr_t granule;
    std::uint32_t birth;
  };

  static std::uint64_t arena_for(const Profile& profile, const Plan& plan) {
    std::uint64_t bytes = 2 * plan.region_bytes;
    for (const auto& tensor : profile.tensors) bytes += 2 * round_up(tensor.bytes, 4_MiB);
    return bytes;
  }

  void begin() {
    for (std::uint32_t t = 0; t < at_.size(); ++t) {
      const auto& tensor = profile_.tensors[t];
      if (tensor.alloc_op || tensor.foreign || tensor.bytes == 0) continue;
      engine_->tick();
      take(t, LiveTensor::kUnplanned);
    }
    engine_->tick();
    space_.activate(bucket_.space_plan());
    bucket_.bind(space_);
    for (const auto id : bucket_.away_at_start())
      if (auto* tensor = bucket_.live(id, space_); tensor != nullptr && tensor->wanted) {
        tensor->wanted = false;
        engine_->demote(tensor->address, tensor->bytes);
      }
    bucket_.begin_step();
  }

  void take(std::uint32_t t, std::uint32_t slot) {
    const auto* tensor = space_.allocate(profile_.tensors[t].bytes, slot, false);
    if (tensor == nullptr) throw Error("an op of a virtual training has no room");
    at_[t] = tensor->address;
  }
  void give(std::uint32_t t) {
    if (at_[t] != 0) space_.release(std::exchange(at_[t], 0));
  }

  void step() {
    for (std::uint32_t op = 0; op < profile_.ops.size(); ++op) run(op);
    // What lives on is the next step's, in the role that it has there.
    let_go_of_borders(UINT32_MAX);
    bucket_.take_over(space_);
    for (const auto& left : left_) {
      give(left.before.value);
      at_[left.before.value] = std::exchange(at_[left.now.value], 0);
    }
    for (std::uint32_t t = 0; t < at_.size(); ++t)
      if (profile_.tensors[t].alloc_op) give(t);
    bucket_.begin_step();
  }

  void run(std::uint32_t index) {
    const auto& op = profile_.ops[index];
    engine_->tick();
    engine_->launching(true);
    moves_.clear();
    bucket_.op_start(OpId(index), moves_);
    apply(index);
    let_go_of_borders(index);
    for (const auto id : bucket_.used(OpId(index)))
      if (at_[id.index()] != 0) engine_->touch(at_[id.index()], bytes(id.value));
    for (const auto* list : {&op.in, &op.out})
      for (const auto id : *list)
        if (at_[id.index()] != 0) engine_->await(at_[id.index()], bytes(id.value));
    for (const auto t : born_[index])
      if (at_[t] == 0) take(t, space_.placed(bucket_.space_plan(), t) ? t : LiveTensor::kUnplanned);
    std::vector<gpu::VirtualGpu::Use> uses;
    for (const auto* list : {&op.in, &op.out})
      for (const auto id : *list)
        if (at_[id.index()] != 0) uses.push_back({at_[id.index()], bytes(id.value)});
    waits_us[index] = gpu_.launch(stream_, op.us, uses);
    engine_->launching(false);
    moves_.clear();
    bucket_.op_end(OpId(index), moves_);
    apply(index);
    for (const auto t : freed_[index]) give(t);
  }
  std::uint64_t bytes(std::uint32_t t) const { return profile_.tensors[t].bytes; }

  void apply(std::uint32_t op) {
    for (const auto& move : moves_) {
      if (move.direction == Direction::copy) continue;
      auto* tensor = bucket_.live(move.tensor, space_);
      const bool wanted = move.direction == Direction::promote;
      if (tensor == nullptr || tensor->wanted == wanted) continue;
      tensor->wanted = wanted;
      if (wanted) {
        engine_->promote(tensor->address, tensor->bytes);
        continue;
      }
      keep_borders(*tensor, op);
      engine_->demote(tensor->address, tensor->bytes);
    }
  }
  void keep_borders(const LiveTensor& tensor, std::uint32_t op) {
    if (tensor.slot == LiveTensor::kUnplanned) return;
    const auto granule_bytes = engine_->granule();
    bucket_.borders().for_each_soon(
        TensorId(tensor.slot), op, [&](std::uint64_t offset, std::uint32_t birth) {
          if (borders_.size() >= 4) return;
          const auto granule = tensor.address / granule_bytes * granule_bytes + offset;
          engine_->promote(granule, 1);
          borders_.push_back({granule, birth});
        });
  }
  void let_go_of_borders(std::uint32_t before) {
    std::erase_if(borders_, [&](const Border& border) {
      if (border.birth >= before) return false;
      engine_->demote(border.granule, 1);
      return true;
    });
  }

  gpu::VirtualGpu gpu_;
  std::unique_ptr<gpu::GpuEngine> engine_;
  Space space_;
  gpu::Stream stream_;
  Bucket bucket_;
  const Profile& profile_;
  std::vector<std::uintptr_t> at_;                        // per tensor: 0, where it is not alive
  std::vector<std::vector<std::uint32_t>> born_, freed_;  // per op
  std::vector<plan::Left> left_;
  std::vector<Border> borders_;
  std::vector<Move> moves_;
};

// A plan for it as a session makes one.
inline Plan virtual_plan(const Profile& profile, const Machine& machine, std::uint64_t budget,
                         const std::string& policy, double time_limit_s) {
  const auto made = make_policy(policy);
  return dynamic_cast<PlannedPolicy&>(*made).plan(profile, machine,
                                                  {.fast_bytes = budget,
                                                   .threads = 1,
                                                   .time_limit_s = time_limit_s,
                                                   .recompute = false,
                                                   .judge = sim::judge(),
                                                   .parts = false,
                                                   .copies = false,
                                                   .in_place = false});
}

}  // namespace sentinel::rig
