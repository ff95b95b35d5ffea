// Computes lifetimes, uses, access counts and peaks from a profile.
#include "sentinel/analysis.h"

#include <algorithm>
#include <numeric>

#include "base/units.h"

namespace sentinel {
namespace {

// Calls visit(tensor, read, written) once for each tensor an op names, in ascending order.
template <class Visit>
void for_each_operand(const Op& op, Visit visit) {
  auto in = op.in.begin();
  auto out = op.out.begin();
  while (in != op.in.end() || out != op.out.end()) {
    const bool read = in != op.in.end() && (out == op.out.end() || *in <= *out);
    const bool written = out != op.out.end() && (in == op.in.end() || *out <= *in);
    visit(read ? *in : *out, read, written);
    if (read) ++in;
    if (written) ++out;
  }
}

std::uint64_t pages(const Profile& profile, const Tensor& tensor) {
  const std::uint64_t page = std::max(profile.meta.page_bytes, 1u);
  return std::max<std::uint64_t>(1, page_round(tensor.bytes, page) / page);
}

// An op that names a tensor opens each of its pages once, so that hotness is the number of such
// ops whatever the tensor's size; an in-place update counts once, as a write.
std::vector<TensorCount> counts_by_name(const Profile& profile) {
  std::vector<TensorCount> result(profile.tensors.size());
  for (const Op& op : profile.ops) {
    for_each_operand(op, [&](TensorId t, bool, bool written) {
      TensorCount& count = result[t.index()];
      ++(written ? count.writes : count.reads);
      count.hotness += 1;
    });
  }
  return result;
}

}  // namespace

std::uint64_t page_round(std::uint64_t bytes, std::uint64_t page) {
  return page == 0 ? bytes : round_up(bytes, page);
}

std::vector<Lifetime> lifetimes(const Profile& profile) {
  const OpId last(profile.ops.empty() ? 0 : profile.ops.size() - 1);
  const auto layer_of = [&](OpId op) {
    return op.index() < profile.ops.size() ? profile.ops[op.index()].layer : LayerId();
  };
  std::vector<Lifetime> result;
  result.reserve(profile.tensors.size());
  for (const Tensor& tensor : profile.tensors) {
    Lifetime life;
    life.first_op = tensor.alloc_op.value_or(OpId());
    life.last_op = tensor.free_op.value_or(last);
    life.first_layer = layer_of(life.first_op);
    life.last_layer = layer_of(life.last_op);
    life.persistent = !tensor.alloc_op && !tensor.free_op;
    result.push_back(life);
  }
  return result;
}

std::vector<std::vector<OpId>> uses(const Profile& profile) {
  std::vector<std::vector<OpId>> result(profile.tensors.size());
  for (std::size_t k = 0; k < profile.ops.size(); ++k)
    for_each_operand(profile.ops[k],
                     [&](TensorId t, bool, bool) { result[t.index()].emplace_back(k); });
  for (const AccessCount& access : profile.accesses)
    if (access.reads + access.writes > 0) result[access.tensor.index()].push_back(access.op);
  for (auto& ops : result) {
    std::ranges::sort(ops);
    const auto repeated = std::ranges::unique(ops);
    ops.erase(repeated.begin(), repeated.end());
  }
  return result;
}

std::vector<TensorCount> counts(const Profile& profile) {
  if (profile.accesses.empty()) return counts_by_name(profile);
  std::vector<TensorCount> result(profile.tensors.size());
  for (const AccessCount& access : profile.accesses) {
    result[access.tensor.index()].reads += access.reads;
    result[access.tensor.index()].writes += access.writes;
  }
  for (std::size_t t = 0; t < result.size(); ++t)
    result[t].hotness = static_cast<double>(result[t].reads + result[t].writes) /
                        static_cast<double>(pages(profile, profile.tensors[t]));
  return result;
}

std::vector<std::uint64_t> live_bytes(const Profile& profile) {
  const auto lives = lifetimes(profile);
  // Differences first: what begins at an op minus what ended before it; unsigned wrap is undone by
  // the sum.
  std::vector<std::uint64_t> live(profile.ops.size() + 1);
  for (std::size_t t = 0; t < lives.size() && !profile.ops.empty(); ++t) {
    if (profile.tensors[t].foreign) continue;
    const auto bytes = page_round(profile.tensors[t].bytes, profile.meta.page_bytes);
    live[lives[t].first_op.index()] += bytes;
    live[lives[t].last_op.index() + 1] -= bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  return live;
}

std::uint64_t peak_live_bytes(const Profile& profile) {
  const auto live = live_bytes(profile);
  return live.empty() ? 0 : *std::ranges::max_element(live);
}

std::vector<std::uint64_t> working_set_bytes(const Profile& profile) {
  std::vector<std::uint64_t> result(profile.ops.size());
  const auto bytes_of = [&](const Tensor& tensor) {
    return tensor.foreign ? 0 : page_round(tensor.bytes, profile.meta.page_bytes);
  };
  const auto names = [](const Op& op, TensorId t) {
    return std::ranges::binary_search(op.in, t) || std::ranges::binary_search(op.out, t);
  };
  for (std::size_t k = 0; k < profile.ops.size(); ++k)
    for_each_operand(profile.ops[k], [&](TensorId t, bool, bool) {
      result[k] += bytes_of(profile.tensors[t.index()]);
    });
  for (std::size_t t = 0; t < profile.tensors.size(); ++t) {
    const Tensor& tensor = profile.tensors[t];
    if (tensor.alloc_op && !names(profile.ops[tensor.alloc_op->index()], TensorId(t)))
      result[tensor.alloc_op->index()] += bytes_of(tensor);
  }
  return result;
}

double ideal_us(const Profile& profile) {
  return std::accumulate(profile.ops.begin(), profile.ops.end(), 0.0,
                         [](double sum, const Op& op) { return sum + op.us; });
}

}  // namespace sentinel
