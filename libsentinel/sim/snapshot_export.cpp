// Replays the step's allocations, and writes them as events and blocks.
#include "sim/snapshot_export.h"

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "sentinel/error.h"
#include "sim/caching_allocator.h"
#include "sim/pickle_writer.h"

namespace sentinel::sim {
namespace {

constexpr std::uint64_t kBase = 0x7f00'0000'0000;  // no tensor lies at 0
constexpr std::uint64_t kRounding = 512;           // the allocator's
constexpr std::array kPhases{"forward", "backward", "optimizer"};

class Export {
 public:
  explicit Export(const Profile& profile)
      : profile_(profile), births_(profile.ops.size()), deaths_(profile.ops.size()) {
    for (std::size_t t = 0; t < profile.tensors.size(); ++t) {
      const auto& tensor = profile.tensors[t];
      if (tensor.foreign || tensor.bytes == 0) continue;
      if (tensor.alloc_op) births_[tensor.alloc_op->index()].push_back(t);
      if (tensor.free_op) deaths_[tensor.free_op->index()].push_back(t);
      if (!tensor.alloc_op) allocate(t);
    }
  }

  std::string run() {
    out_.begin_dictionary();
    out_.key("device_traces");
    out_.begin_list();
    out_.begin_list();
    for (std::size_t k = 0; k < profile_.ops.size(); ++k) op(k);
    out_.end();
    out_.end();
    out_.key("segments");
    out_.begin_list();
    segment();
    out_.end();
    out_.key("external_annotations");
    out_.begin_list();
    out_.end();
    out_.end();
    return out_.take();
  }

 private:
  void allocate(std::size_t t) {
    const auto address = allocator_.allocate(profile_.tensors[t].bytes);
    live_.emplace(address, t);
    addresses_[t] = address;
  }

  void op(std::size_t k) {
    for (const auto t : births_[k]) {
      allocate(t);
      event("alloc", t, k);
    }
    elapsed_us_ += profile_.ops[k].us;
    for (const auto t : deaths_[k]) {
      event("free_requested", t, k);
      event("free_completed", t, k);
      allocator_.free(addresses_[t]);
      live_.erase(addresses_[t]);
    }
  }

  void event(const char* action, std::size_t t, std::size_t k) {
    out_.begin_dictionary();
    text("action", action);
    number("addr", kBase + addresses_[t]);
    number("size", profile_.tensors[t].bytes);
    number("stream", 0);
    number("time_us", static_cast<std::uint64_t>(elapsed_us_));
    text("user_metadata", profile_.tensors[t].name);
    frames(k);
    out_.end();
  }

  void frames(std::size_t k) {
    const auto& op = profile_.ops[k];
    const auto layer = op.layer.index();
    out_.key("frames");
    out_.begin_list();
    frame(layer < profile_.layers.size() ? profile_.layers[layer].name : "", k, op.name);
    frame(profile_.meta.model, layer, kPhases[static_cast<std::size_t>(op.phase)]);
    out_.end();
  }

  void frame(const std::string& file, std::size_t line, const std::string& name) {
    out_.begin_dictionary();
    text("filename", file.empty() ? "step" : file);
    number("line", line);
    text("name", name);
    out_.end();
  }

  // All that is reserved: what lives at the end, and the gaps between.
  void segment() {
    const auto reserved = allocator_.reserved_bytes();
    std::uint64_t allocated = 0;
    for (const auto& [address, t] : live_) allocated += rounded(t);
    out_.begin_dictionary();
    number("device", 0);
    number("address", kBase);
    number("total_size", reserved);
    number("allocated_size", allocated);
    number("active_size", allocated);
    number("requested_size", allocated);
    number("stream", 0);
    text("segment_type", "large");
    out_.key("is_expandable");
    out_.boolean(false);
    no_frames();
    out_.key("blocks");
    out_.begin_list();
    blocks(reserved);
    out_.end();
    out_.end();
  }

  void blocks(std::uint64_t end) {
    std::uint64_t at = 0;
    const auto gap_until = [&](std::uint64_t next) {
      if (next > at) block(at, next - at, "inactive", 0, nullptr);
      at = next;
    };
    for (const auto& [address, t] : live_) {
      gap_until(address);
      block(address, rounded(t), "active_allocated", profile_.tensors[t].bytes,
            &profile_.tensors[t]);
      at = address + rounded(t);
    }
    gap_until(end);
  }

  void block(std::uint64_t address, std::uint64_t bytes, const char* state, std::uint64_t requested,
             const Tensor* tensor) {
    out_.begin_dictionary();
    number("address", kBase + address);
    number("size", bytes);
    number("requested_size", requested);
    text("state", state);
    if (tensor != nullptr) text("user_metadata", tensor->name);
    if (tensor != nullptr && tensor->alloc_op)
      frames(tensor->alloc_op->index());
    else
      no_frames();
    out_.end();
  }

  std::uint64_t rounded(std::size_t t) const {
    return round_up(profile_.tensors[t].bytes, kRounding);
  }
  void no_frames() {
    out_.key("frames");
    out_.begin_list();
    out_.end();
  }
  void text(const char* name, std::string_view value) {
    out_.key(name);
    out_.text(value);
  }
  void number(const char* name, std::uint64_t value) {
    out_.key(name);
    out_.number(value);
  }

  const Profile& profile_;
  PickleWriter out_;
  CachingAllocator allocator_;
  std::vector<std::vector<std::size_t>> births_, deaths_;  // tensors, by op
  std::map<std::size_t, std::uint64_t> addresses_;         // by tensor
  std::map<std::uint64_t, std::size_t> live_;              // by address
  double elapsed_us_ = 0;
};

}  // namespace

std::string pytorch_snapshot(const Profile& profile) {
  if (profile.ops.empty())
    throw Error("the profile holds no operation, so there is no step to show");
  return Export(profile).run();
}

}  // namespace sentinel::sim
