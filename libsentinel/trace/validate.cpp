// Checks every number and reference of a profile.
#include "trace/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/checked.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

template <class... Args>
void require(bool holds, fmt::format_string<Args...> what, Args&&... args) {
  if (!holds) throw Error(fmt::format(what, std::forward<Args>(args)...));
}

bool plausible_time(double us) { return std::isfinite(us) && us >= 0 && us < 1e15; }

void validate_ops(const Profile& profile) {
  LayerId layer;
  for (std::size_t k = 0; k < profile.ops.size(); ++k) {
    const Op& op = profile.ops[k];
    validate(op, k);
    require(op.layer.index() < profile.layers.size(), "op {} is in layer {}, which does not exist",
            k, op.layer.value);
    require(op.layer >= layer, "op {} goes back to layer {}", k, op.layer.value);
    for (const auto* operands : {&op.in, &op.out})
      require(operands->empty() || operands->back().index() < profile.tensors.size(),
              "op {} names a tensor that does not exist", k);
    layer = op.layer;
  }
}

void validate_lifetime(const Profile& profile, std::size_t t) {
  const Tensor& tensor = profile.tensors[t];
  for (const auto& op : {tensor.alloc_op, tensor.free_op})
    require(!op || op->index() < profile.ops.size(),
            "tensor {} is allocated or freed at an op that does not exist", t);
}

void validate_tensors(const Profile& profile) {
  std::uint64_t total = 0;
  for (std::size_t t = 0; t < profile.tensors.size(); ++t) {
    validate(profile.tensors[t], t);
    validate_lifetime(profile, t);
    total += profile.tensors[t].bytes;
    require(total <= max_total_bytes, "the tensors up to {} are too large together", t);
  }
}

void validate_accesses(const Profile& profile) {
  const AccessCount* previous = nullptr;
  for (const AccessCount& access : profile.accesses) {
    require(
        access.tensor.index() < profile.tensors.size() && access.op.index() < profile.ops.size(),
        "the access count of tensor {} at op {} belongs to nothing", access.tensor.value,
        access.op.value);
    require(previous == nullptr ||
                std::pair(previous->tensor, previous->op) < std::pair(access.tensor, access.op),
            "the access count of tensor {} at op {} is repeated or out of order",
            access.tensor.value, access.op.value);
    // Sums over a profile stay within 64 bits: max_records times this.
    require(std::max(access.reads, access.writes) < std::uint64_t{1} << 37,
            "tensor {} at op {} is said to be opened more often than any step can",
            access.tensor.value, access.op.value);
    previous = &access;
  }
}

void validate_counts(const Profile& profile) {
  for (const std::size_t count : {profile.layers.size(), profile.ops.size(), profile.tensors.size(),
                                  profile.accesses.size(), profile.natural.size()})
    require(count <= max_records, "{} records of one kind are too many", count);
}

}  // namespace

void validate_text(std::string_view text, std::string_view what, std::size_t longest) {
  require(text.size() <= longest, "{} is {} bytes long; {} at most are read", what, text.size(),
          longest);
  require(text.find('\0') == std::string_view::npos, "{} contains a NUL", what);
}

void validate(const ProfileMeta& meta) {
  for (const std::string* text :
       {&meta.source, &meta.incomplete_reason, &meta.model, &meta.command, &meta.framework,
        &meta.machine.hostname, &meta.machine.cpu, &meta.machine.kernel, &meta.created})
    validate_text(*text, "the description");
  require(std::has_single_bit(meta.page_bytes) && meta.page_bytes <= 1u << 30,
          "the page size, {} bytes, is not a power of two up to 1 GiB", meta.page_bytes);
  require(plausible_time(meta.step_us) && plausible_time(meta.profiled_step_us),
          "a step time is not a time");
  require(std::isfinite(meta.sample_error) && meta.sample_error >= 0,
          "the sampling error is not a number");
}

void validate(const Op& op, std::size_t k) {
  validate_text(op.name, "an op's name", max_name);
  validate_text(op.parent, "an op's parent", max_name);
  require(op.phase <= Phase::optimizer, "op {} has an unknown phase", k);
  require(plausible_time(op.us), "op {} takes {} us", k, op.us);
  for (const auto* operands : {&op.in, &op.out})
    require(std::ranges::adjacent_find(*operands, std::ranges::greater_equal()) == operands->end(),
            "op {} names a tensor twice or out of order", k);
}

void validate(const Tensor& tensor, std::size_t t) {
  validate_text(tensor.name, "a tensor's name", max_name);
  require(tensor.bytes <= max_tensor_bytes, "tensor {} with its {} bytes is too large", t,
          tensor.bytes);
  require(tensor.kind <= TensorKind::workspace, "tensor {} has an unknown kind", t);
  require(tensor.sample_stride >= 1, "tensor {} has a sample stride of 0", t);
  require(tensor.again.size() <= max_records && (tensor.again.empty() || tensor.alloc_op) &&
              std::ranges::adjacent_find(tensor.again, std::ranges::greater_equal()) ==
                  tensor.again.end() &&
              (tensor.again.empty() || tensor.again.front() > tensor.ordinal),
          "tensor {} is said to be allocated again before it is allocated", t);
  require(tensor.offset.value_or(0) <= max_total_bytes, "tensor {} lies out of the arena", t);
  require(!tensor.alloc_op || !tensor.free_op || *tensor.alloc_op <= *tensor.free_op,
          "tensor {} is freed before it is allocated", t);
}

void validate(const Profile& profile) {
  validate_counts(profile);
  validate(profile.meta);
  for (const Layer& layer : profile.layers) {
    validate_text(layer.name, "a layer's name", max_name);
    require(layer.phase <= Phase::optimizer, "layer \"{}\" has an unknown phase", layer.name);
  }
  validate_ops(profile);
  validate_tensors(profile);
  validate_accesses(profile);
  for (const NaturalPlacement& natural : profile.natural) {
    require(natural.tensor.index() < profile.tensors.size(),
            "the natural address of tensor {} belongs to nothing", natural.tensor.value);
    require(checked_sum(natural.address, profile.tensors[natural.tensor.index()].bytes).has_value(),
            "tensor {} would naturally lie beyond all addresses", natural.tensor.value);
  }
}

}  // namespace sentinel
