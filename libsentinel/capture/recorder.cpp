// Collects a step's ops, tensors and accesses while it runs, and makes a profile of them.
#include "capture/recorder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "alloc/heap.h"
#include "base/units.h"
#include "capture/sampling.h"

namespace sentinel {
namespace {

constexpr std::uint64_t kPage = 4096;

double microseconds(StepRecorder::Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

// Ops with a weight of their own. Where a program has no modules, a layer begins at each.
bool begins_layer(std::string_view op) {
  constexpr std::array heavy{"conv", "addmm", "::mm", "bmm", "linear", "lstm", "gru", "embedding"};
  return std::any_of(heavy.begin(), heavy.end(),
                     [&](const char* part) { return op.find(part) != op.npos; });
}

}  // namespace

std::uint64_t name_hash(std::string_view name) { return std::hash<std::string_view>()(name); }

void StepRecorder::begin(OpOrder order) {
  *this = StepRecorder();
  order_ = order;
  begin_ = Clock::now();
  ops_.push_back({kPrelude, name_hash(kPrelude), 0, Phase::forward, begin_, begin_});
}

StepRecorder::Record StepRecorder::add(Tensor tensor, Op named_by) {
  tensors_.push_back(std::move(tensor));
  named_by_.push_back(named_by);
  return static_cast<Record>(tensors_.size() - 1);
}

void StepRecorder::grow_live(std::uint64_t bytes) {
  live_bytes_ += round_up(bytes, kPage);
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
}

StepRecorder::Record StepRecorder::present(std::uint64_t bytes, std::uint64_t offset) {
  grow_live(bytes);
  events_.push_back({static_cast<Record>(tensors_.size()), true});
  return add({.bytes = bytes, .offset = offset});
}

StepRecorder::Record StepRecorder::allocated(Op op, std::uint64_t bytes, std::uint64_t offset) {
  grow_live(bytes);
  signature_ = extended(signature_, allocation_event(ops_[op].hash, bytes), order_);
  events_.push_back({static_cast<Record>(tensors_.size()), true});
  return add(
      {.bytes = bytes, .alloc_op = OpId(op), .ordinal = ops_[op].allocations++, .offset = offset},
      op);
}

void StepRecorder::freed(Record record) {
  auto& tensor = tensors_[record];
  tensor.free_op = OpId(latest_op());
  live_bytes_ -= round_up(tensor.bytes, kPage);
  events_.push_back({record, false});
}

StepRecorder::Record StepRecorder::foreign(std::uintptr_t address, std::uint64_t bytes) {
  const auto [it, added] = foreign_.try_emplace(address, kNone);
  if (added) it->second = add({.bytes = bytes, .foreign = true});
  return it->second;
}

void StepRecorder::layer(std::string_view name, Phase phase) {
  explicit_layers_ = true;
  if (!layers_.empty() && layers_.back().name == name && layers_.back().phase == phase) return;
  layers_.push_back({std::string(name), phase});
}

void StepRecorder::layer_once(std::string_view name, Phase phase) {
  const auto same = [&](const Layer& begun) { return begun.name == name && begun.phase == phase; };
  if (std::find_if(layers_.rbegin(), layers_.rend(), same) == layers_.rend()) layer(name, phase);
}

void StepRecorder::one_layer(std::string_view name) {
  explicit_layers_ = true;
  layers_.assign(1, {std::string(name), Phase::forward});
  for (auto& op : ops_) op.layer = 0;
}

StepRecorder::Op StepRecorder::op_start(const char* name, Phase phase, double waited_us) {
  const auto hash = name_hash(name);
  signature_ = extended(signature_, op_event(hash), order_);
  if (layers_.empty()) layers_.push_back({name, phase});
  ops_.push_back({name,
                  hash,
                  static_cast<std::uint32_t>(layers_.size() - 1),
                  phase,
                  Clock::now(),
                  {},
                  waited_us,
                  waited_us});
  return latest_op();
}

void StepRecorder::op_uses(Op op, Record tensor, bool reads, bool writes) {
  uses_.push_back({op, tensor, reads, writes});
  named_by_[tensor] = op;
}

void StepRecorder::op_run(Op op, double waited_us) {
  ops_[op].start = Clock::now();
  ops_[op].waited_us = waited_us;
}

void StepRecorder::op_end(Op op, double waited_us) {
  ops_[op].end = Clock::now();
  ops_[op].end_waited_us = waited_us;
  ops_[op].running = false;
}

// Each half is an estimate of the whole; theirs is the mean of the two, weighted by their pages.
void StepRecorder::opened(Op op, const PageCount& count) {
  const auto named_by = named_by_[static_cast<Record>(count.tag)];
  if (named_by != kPreludeOp && ops_[named_by].running) op = named_by;
  accesses_.push_back({TensorId(count.tag), OpId(op), count.reads, count.writes});
  const Tensor& tensor = tensors_[count.tag];
  const double pages = static_cast<double>(round_up(tensor.bytes, kPage) / kPage);
  const double sum = static_cast<double>(count.reads + count.writes);
  counted_ += sum;
  variance_ += count.variance;
  if (tensor.sample_stride == 1) return;
  const auto even =
      static_cast<double>(even_pages(static_cast<std::size_t>(pages), tensor.sample_stride));
  const double of_even = static_cast<double>(count.even) / even;
  const double of_odd = (sum - static_cast<double>(count.even)) / (pages - even);
  const double error = pages * (of_even - of_odd) / 2;
  variance_ += error * error;
}

void StepRecorder::forget_openings() {
  accesses_.clear();
  counted_ = variance_ = 0;
  for (auto& tensor : tensors_) tensor.sample_stride = 1;
}

double StepRecorder::sample_error() const {
  return counted_ == 0 ? 0 : std::sqrt(variance_) / counted_;
}

double StepRecorder::microseconds() const { return sentinel::microseconds(Clock::now() - begin_); }

// An op's time runs to the start of the next one: what the framework does in between is part of the
// step, and the sum of op times is then the step, but for what it waited for memory.
std::vector<double> StepRecorder::measured() const {
  std::vector<double> times(ops_.size());
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const bool last = i + 1 == ops_.size();
    const auto next = last ? std::max(ops_[i].end, ops_[i].start) : ops_[i + 1].start;
    const double waited =
        (last ? ops_[i].end_waited_us : ops_[i + 1].waited_us) - ops_[i].waited_us;
    times[i] = std::max(0.0, sentinel::microseconds(next - ops_[i].start) - waited);
  }
  return times;
}

StepRecorder::Times StepRecorder::op_microseconds() const {
  Times times;
  const auto each = measured();
  for (std::size_t i = 0; i < ops_.size(); ++i) times[ops_[i].hash].push_back(each[i]);
  return times;
}

// Memory that an op has freed serves its next allocation of as many bytes: a convolution's backward
// pass makes reordered copies of its operands twice, the second ones in the place of the first. The
// op needs room for both at no time, so in the profile they are one tensor.
std::vector<TensorId> StepRecorder::add_tensors(Profile& profile) const {
  std::vector<TensorId> ids(tensors_.size());
  std::vector<bool> is_again(tensors_.size(), false);
  std::vector<Record> first(tensors_.size());
  std::map<std::pair<OpId, std::uint64_t>, std::vector<Record>> freed;
  std::iota(first.begin(), first.end(), Record{0});
  for (const auto& [record, allocated] : events_) {
    const auto& tensor = tensors_[record];
    if (!tensor.alloc_op) continue;
    if (!allocated) {
      if (tensor.free_op == tensor.alloc_op)
        freed[{*tensor.alloc_op, tensor.bytes}].push_back(first[record]);
    } else if (const auto at = freed.find({*tensor.alloc_op, tensor.bytes});
               at != freed.end() && !at->second.empty()) {
      first[record] = at->second.back();
      at->second.pop_back();
      is_again[record] = true;
    }
  }
  for (Record r = 0; r < tensors_.size(); ++r) {
    if (!is_again[r]) {
      ids[r] = TensorId(profile.tensors.size());
      profile.tensors.push_back(tensors_[r]);
      continue;
    }
    ids[r] = ids[first[r]];
    auto& tensor = profile.tensors[ids[r].index()];
    tensor.again.push_back(tensors_[r].ordinal);
    tensor.free_op = tensors_[r].free_op;
  }
  return ids;
}

Profile StepRecorder::profile(const ProfileMeta& meta, const Times& times) const {
  Profile profile{.meta = meta, .layers = layers_};
  const auto ids = add_tensors(profile);
  const auto each = measured();
  std::unordered_map<std::uint64_t, std::size_t> seen;  // ops of a name
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const auto of_name = times.find(ops_[i].hash);
    const auto n = seen[ops_[i].hash]++;
    const bool known = of_name != times.end() && n < of_name->second.size();
    profile.ops.push_back({.name = ops_[i].name,
                           .layer = LayerId(ops_[i].layer),
                           .phase = ops_[i].phase,
                           .us = known ? of_name->second[n] : each[i]});
  }
  for (const auto& use : uses_) {
    auto& op = profile.ops[use.op];
    if (use.reads) op.in.push_back(ids[use.tensor]);
    if (use.writes) op.out.push_back(ids[use.tensor]);
  }
  for (std::size_t t = 0; t < profile.tensors.size(); ++t)
    if (profile.tensors[t].alloc_op && !ops_.empty())
      profile.ops[profile.tensors[t].alloc_op->index()].out.push_back(TensorId(t));
  for (auto& op : profile.ops)
    for (auto* list : {&op.in, &op.out}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
  std::map<std::pair<TensorId, OpId>, AccessCount> sums;
  for (const auto& access : accesses_) {
    const auto tensor = ids[access.tensor.index()];
    auto& sum = sums.try_emplace({tensor, access.op}, AccessCount{tensor, access.op}).first->second;
    sum.reads += access.reads;
    sum.writes += access.writes;
  }
  for (const auto& [key, sum] : sums) profile.accesses.push_back(sum);
  if (!explicit_layers_) layers_from_ops(profile);
  kinds(profile);
  natural_placement(profile, ids);
  name_tensors(profile);
  return profile;
}

void StepRecorder::layers_from_ops(Profile& profile) const {
  profile.layers.clear();
  for (auto& op : profile.ops) {
    const bool other_phase = !profile.layers.empty() && profile.layers.back().phase != op.phase;
    if (profile.layers.empty() || other_phase || begins_layer(op.name))
      profile.layers.push_back({op.name, op.phase});
    op.layer = LayerId(profile.layers.size() - 1);
  }
}

// What outlives the step or was there before it is global; what one op alone sees is its workspace.
void StepRecorder::kinds(Profile& profile) const {
  for (auto& tensor : profile.tensors) {
    if (tensor.foreign || !tensor.alloc_op || !tensor.free_op)
      tensor.kind = TensorKind::global;
    else if (*tensor.alloc_op == *tensor.free_op)
      tensor.kind = TensorKind::workspace;
    else
      tensor.kind = TensorKind::intermediate;
    if (tensor.alloc_op) tensor.offset.reset();
  }
}

// Where a best-fit allocator would have put the small tensors: while profiling each has pages of
// its own, so what they would share has to be replayed.
void StepRecorder::natural_placement(Profile& profile, const std::vector<TensorId>& ids) const {
  constexpr std::uintptr_t kBase = 1u << 20;
  Heap heap(kBase, 1ull << 46);
  std::vector<std::uintptr_t> address(tensors_.size());
  for (const auto& [record, allocated] : events_) {
    const auto bytes = std::max<std::uint64_t>(1, tensors_[record].bytes);
    if (!allocated)
      heap.free(address[record], bytes);
    else
      address[record] = heap.allocate(bytes, 64);
  }
  std::map<TensorId, std::uintptr_t> last;  // of what is one tensor, where it lived longest
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    if (address[t] != 0) last[ids[t]] = address[t];
  for (const auto& [tensor, at] : last) profile.natural.push_back({tensor, at});
}

void StepRecorder::name_tensors(Profile& profile) const {
  for (std::size_t t = 0; t < profile.tensors.size(); ++t) {
    auto& tensor = profile.tensors[t];
    if (tensor.foreign)
      tensor.name = "foreign:" + std::to_string(t);
    else if (!tensor.alloc_op)
      tensor.name = "persistent:" + std::to_string(t);
    else if (!profile.ops.empty()) {
      const auto& op = profile.ops[tensor.alloc_op->index()];
      tensor.name = profile.layers[op.layer.index()].name + "/" + op.name + ":" +
                    std::to_string(tensor.ordinal);
    }
  }
}

}  // namespace sentinel
