// Makes a profile of a snapshot's allocations: ops by their frames, tensors by their blocks.
#include "trace/pytorch_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/checked.h"
#include "sentinel/error.h"
#include "trace/live_blocks.h"
#include "trace/plain_data.h"
#include "trace/signature.h"
#include "trace/validate.h"

namespace sentinel {
namespace {

using Ref = PlainData::Ref;

constexpr std::size_t kMostFrames = 1000;  // of one event: Python's own limit

constexpr std::size_t kLongestName = 64;  // of a file or a function, in the name of an op

struct Line {  // of Python; empty: none
  std::string_view file;
  std::int64_t number = 0;
  std::string_view function;
  friend bool operator==(const Line&, const Line&) = default;
  std::string text() const {
    return file.empty() ? "" : fmt::format("{}:{} {}", file, number, function);
  }
};

struct CodeLocation {  // in the program
  Line line, caller;
  Phase phase = Phase::forward;
  bool python = false;
  friend bool operator==(const CodeLocation&, const CodeLocation&) = default;
};

struct SourceFile {
  std::string_view name;  // without its folders
  bool python = false, torch = false, optimizer = false;
};

class Import {
 public:
  Import(const PlainData& data, Ref root) : data_(data), root_(root) {}
  Profile run();

 private:
  std::span<const Ref> items(Ref dictionary, std::string_view key) const;
  std::uint64_t natural(Ref dictionary, std::string_view key) const;
  std::uint64_t address(Ref dictionary, std::string_view key) const;
  bool flag(std::string_view key) const;
  std::string_view text(Ref dictionary, std::string_view key) const;
  Ref busiest_trace();
  void once(Ref event_or_block);
  CodeLocation place_of(Ref event);
  CodeLocation read_place(std::span<const Ref> frames);
  const SourceFile& file_of(Ref frame);
  void event(Ref event);
  void allocate(Ref event, std::uint64_t address);
  void release(Ref event, std::uint64_t address);
  void complete(Ref event, std::uint64_t address);
  void end_at_last_op(TensorId);
  void lose(std::uint64_t address, std::uint64_t bytes);
  void begin_op(const CodeLocation& place, Ref event);
  void left_from_before();
  std::string notes() const;
  void finish();
  OpId last_op() const { return OpId(profile_.ops.size() - 1); }

  const PlainData& data_;
  const Ref root_;
  std::int64_t device_ = 0;
  Profile profile_;
  LiveBlocks live_;
  std::unordered_set<std::uint64_t> requested_;  // freed there, and not yet completed
  bool requests_ = false;                        // are recorded
  std::size_t lost_ = 0;                         // tensors whose frees are not recorded
  std::vector<double> begin_us_;                 // of each op, as recorded
  std::vector<bool> python_;                     // of each op: it has a frame of Python
  double last_us_ = 0;
  std::unordered_map<Ref, CodeLocation> places_;  // by list of frames
  std::unordered_map<Ref, SourceFile> files_;     // by text
  std::vector<bool> seen_;                        // events and blocks
  std::optional<CodeLocation> place_;             // of the op that goes on
  bool freed_ = false;                            // in that op
};

std::span<const Ref> Import::items(Ref dictionary, std::string_view key) const {
  const auto found = data_.find(dictionary, key);
  return found ? data_.list(*found) : std::span<const Ref>();
}

std::uint64_t Import::natural(Ref dictionary, std::string_view key) const {
  const auto found = data_.find(dictionary, key);
  const auto value = found ? data_.integer(*found) : std::nullopt;
  if (!value || *value < 0) throw Error(fmt::format("\"{}\" is not a whole number from 0 on", key));
  return static_cast<std::uint64_t>(*value);
}

// PyTorch has written addresses as signed numbers, too.
std::uint64_t Import::address(Ref dictionary, std::string_view key) const {
  const auto found = data_.find(dictionary, key);
  if (found) {
    if (const auto value = data_.natural(*found)) return *value;
    if (const auto value = data_.integer(*found)) return static_cast<std::uint64_t>(*value);
  }
  throw Error(fmt::format("\"{}\" is not an address", key));
}

// One for all devices, or a list with one for each.
bool Import::flag(std::string_view key) const {
  const auto found = data_.find(root_, key);
  if (!found) return false;
  const auto each = data_.list(*found);
  const auto i = static_cast<std::size_t>(device_);
  return data_.boolean(i < each.size() ? each[i] : *found).value_or(false);
}

std::string_view Import::text(Ref dictionary, std::string_view key) const {
  const auto found = data_.find(dictionary, key);
  return found ? data_.text(*found) : std::string_view();
}

// Every event and every block is a value of its own, as PyTorch writes them. One that a file names
// again and again would take more time and memory than the file's length explains.
void Import::once(Ref event_or_block) {
  if (event_or_block >= seen_.size()) seen_.resize(data_.size());
  if (seen_[event_or_block])
    throw Error(
        "an event or a block is listed twice, as PyTorch lists none; take the snapshot again");
  seen_[event_or_block] = true;
}

Ref Import::busiest_trace() {
  if (data_.kind(root_) == PlainData::Kind::list)
    throw Error(
        "this lists segments alone, as torch.cuda.memory_snapshot() does, without the events that "
        "made them; call torch.cuda.memory._record_memory_history() before the step and "
        "_dump_snapshot() after it");
  const auto traces = data_.find(root_, "device_traces");
  if (!traces || !data_.find(root_, "segments"))
    throw Error("this is not a memory snapshot: it has no \"segments\" and \"device_traces\"");
  std::optional<Ref> busiest;
  double most = 0;
  const auto devices = data_.list(*traces);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    double bytes = 0;
    for (const Ref event : data_.list(devices[i])) {
      once(event);
      if (text(event, "action") == "alloc") bytes += static_cast<double>(natural(event, "size"));
    }
    if (bytes <= most) continue;
    most = bytes;
    busiest = devices[i];
    device_ = static_cast<std::int64_t>(i);
  }
  if (!busiest)
    throw Error(
        "this is a snapshot without a recording: no allocation was recorded; call "
        "torch.cuda.memory._record_memory_history() before the step");
  return *busiest;
}

// Events share their frames; a file that shares many would take long to read otherwise.
CodeLocation Import::place_of(Ref event) {
  const auto frames = data_.find(event, "frames");
  if (!frames) return {};
  const auto [known, missing] = places_.try_emplace(*frames);
  if (missing) known->second = read_place(data_.list(*frames));
  return known->second;
}

// Frames share the names of their files, which may be long.
const SourceFile& Import::file_of(Ref frame) {
  static constexpr SourceFile kNone;
  const auto name = data_.find(frame, "filename");
  if (!name) return kNone;
  const auto [known, missing] = files_.try_emplace(*name);
  SourceFile& file = known->second;
  if (!missing) return file;
  const auto path = data_.text(*name);
  file.python = path.ends_with(".py");
  file.torch = path.find("/torch/") != path.npos;
  file.optimizer = path.find("/optim/") != path.npos;
  file.name = path.substr(path.rfind('/') + 1);
  file.name.remove_prefix(file.name.size() - std::min(file.name.size(), kLongestName));
  return file;
}

CodeLocation Import::read_place(std::span<const Ref> frames) {
  CodeLocation place;
  for (const Ref frame : frames.first(std::min(frames.size(), kMostFrames))) {  // innermost first
    const auto& file = file_of(frame);
    const auto name = text(frame, "name").substr(0, kLongestName);
    if (file.optimizer) place.phase = Phase::optimizer;
    if (name == "backward" && place.phase == Phase::forward) place.phase = Phase::backward;
    if (!file.python) continue;
    const auto number = data_.find(frame, "line");
    const Line line{file.name, number ? data_.integer(*number).value_or(0) : 0, name};
    if (!place.python) place.line = line;
    place.python = true;
    if (place.caller.file.empty() && !file.torch) place.caller = line;
  }
  if (place.caller.file.empty()) place.caller = place.line;
  return place;
}

void Import::begin_op(const CodeLocation& place, Ref event) {
  Op op{.name = place.line.text(), .phase = place.phase, .parent = place.caller.text()};
  if (profile_.layers.empty() || profile_.ops.back().parent != op.parent)
    profile_.layers.push_back({op.parent, op.phase});
  op.layer = LayerId(profile_.layers.size() - 1);
  const auto time = data_.find(event, "time_us");
  last_us_ = std::max(last_us_, time ? data_.number(*time).value_or(0) : 0);
  begin_us_.push_back(last_us_);
  python_.push_back(place.python);
  profile_.ops.push_back(std::move(op));
  place_ = place;
  freed_ = false;
}

void Import::allocate(Ref event, std::uint64_t address) {
  const auto place = place_of(event);
  const auto bytes = natural(event, "size");
  lose(address, bytes);
  if (profile_.ops.empty() || freed_ || place != *place_) begin_op(place, event);
  const TensorId t(profile_.tensors.size());
  requested_.erase(address);
  live_.begin(address, bytes, t);
  auto& op = profile_.ops.back();
  profile_.tensors.push_back({.bytes = bytes,
                              .alloc_op = last_op(),
                              .ordinal = static_cast<std::uint32_t>(op.out.size())});
  op.out.push_back(t);
}

// A tensor that is freed and was never allocated was there before.
void Import::release(Ref event, std::uint64_t address) {
  if (profile_.ops.empty()) begin_op(place_of(event), event);
  freed_ = true;
  const auto found = live_.end(address);
  const TensorId t = found.value_or(TensorId(profile_.tensors.size()));
  if (!found)
    profile_.tensors.push_back(
        {.name = fmt::format("before:{}", t.value), .bytes = natural(event, "size")});
  end_at_last_op(t);
}

// Some recordings hold completions alone. Where requests are recorded, a completion that has none
// and frees nothing known ends a free of before the recording.
void Import::complete(Ref event, std::uint64_t address) {
  if (requested_.erase(address) != 0) return;
  if (requests_ && !live_.contains(address)) return;
  release(event, address);
}

void Import::end_at_last_op(TensorId t) {
  auto& tensor = profile_.tensors[t.index()];
  tensor.free_op = last_op();
  if (tensor.alloc_op == tensor.free_op)
    tensor.kind = TensorKind::workspace;
  else
    profile_.ops.back().in.push_back(t);
}

void Import::lose(std::uint64_t address, std::uint64_t bytes) {
  for (const TensorId t : live_.clear(address, bytes)) {
    end_at_last_op(t);
    ++lost_;
  }
}

void Import::event(Ref event) {
  const auto action = text(event, "action");
  const auto time = data_.find(event, "time_us");
  if (action == "alloc") allocate(event, address(event, "addr"));
  if (action == "free_requested") {
    release(event, address(event, "addr"));
    requested_.insert(address(event, "addr"));
  }
  if (action == "free_completed") complete(event, address(event, "addr"));
  if (action == "segment_free" || action == "segment_unmap")
    lose(address(event, "addr"), natural(event, "size"));
  if (time) last_us_ = std::max(last_us_, data_.number(*time).value_or(0));
}

// Blocks of the device that are in use at the end and that no recorded tensor has. Of those not in
// use, each recorded tensor is gone.
void Import::left_from_before() {
  const auto segments = data_.find(root_, "segments");
  for (const Ref segment : data_.list(*segments)) {
    const auto device = data_.find(segment, "device");
    if (device && data_.integer(*device) != device_) continue;
    std::uint64_t address = this->address(segment, "address");
    for (const Ref block : items(segment, "blocks")) {
      once(block);
      const auto bytes = natural(block, "size");
      const auto state = text(block, "state");
      if (state == "inactive") lose(address, bytes);
      if (state == "active_allocated" && !live_.contains(address))
        profile_.tensors.push_back({.name = fmt::format("before:{}", profile_.tensors.size()),
                                    .bytes = bytes,
                                    .kind = TensorKind::global});
      const auto next = checked_sum(address, bytes);
      if (!next) throw Error("a segment's blocks end beyond all addresses");
      address = *next;
    }
  }
}

std::string Import::notes() const {
  std::string all;
  const auto note = [&all](const std::string& text) { all += (all.empty() ? "" : "; ") + text; };
  if (lost_ != 0)
    note(
        fmt::format("the frees of {} tensors were not recorded: each ends where its memory is "
                    "used again, or with the recording",
                    lost_));
  if (flag("trace_alloc_overflowed"))
    note(
        "the recording overflowed and its oldest events are lost: set max_entries higher in "
        "_record_memory_history()");
  if (last_us_ <= 0)
    note("no event tells its time, as before PyTorch 2.1: ops have no times, and no ratio is told");
  return all;
}

void Import::finish() {
  const bool told = std::ranges::find(python_, true) != python_.end();
  for (std::size_t k = 0; k < profile_.ops.size(); ++k) {
    Op& op = profile_.ops[k];
    op.us = (k + 1 < begin_us_.size() ? begin_us_[k + 1] : last_us_) - begin_us_[k];
    profile_.meta.step_us += op.us;
    std::ranges::sort(op.in);
    if (!python_[k]) {
      op.name = profile_.layers[op.layer.index()].name = told ? "backward" : "allocations";
      if (told) op.phase = profile_.layers[op.layer.index()].phase = Phase::backward;
    }
    for (const TensorId t : op.out) {
      auto& tensor = profile_.tensors[t.index()];
      tensor.name = fmt::format("{}:{}", op.name, tensor.ordinal);
    }
  }
  auto& meta = profile_.meta;
  meta.source = "trace";
  meta.framework = "torch";
  meta.exact = meta.complete = true;
  meta.incomplete_reason = notes();
  meta.signature = step_signature(profile_);
  validate(profile_);
}

Profile Import::run() {
  const auto events = data_.list(busiest_trace());
  requests_ = std::ranges::any_of(
      events, [this](Ref event) { return text(event, "action") == "free_requested"; });
  for (std::size_t i = 0; i < events.size(); ++i) try {
      event(events[i]);
    } catch (const Error& error) {
      throw Error(fmt::format("event {} of device {}: {}", i, device_, error.what()));
    }
  left_from_before();
  finish();
  return std::move(profile_);
}

}  // namespace

Profile read_pytorch_snapshot(const std::string& path) {
  const auto file = read_plain_file(path);
  try {
    return Import(file.data, file.root).run();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace sentinel
