#include "plan/storage.h"

#include <algorithm>
#include <map>

#include "sentinel/analysis.h"

namespace sentinel::plan {
namespace {

// last step's instance -> this step's, by equal size and order
std::map<std::uint32_t, std::uint32_t> carried_pairs(const Profile& profile) {
  struct Outgoing {  // of one size, in order; those before `head` are taken
    std::vector<std::uint32_t> tensors;
    std::vector<bool> taken;
    std::size_t head = 0;
  };
  std::map<std::uint64_t, Outgoing> outgoing;
  for (std::uint32_t t = 0; t < profile.tensors.size(); ++t) {
    const Tensor& tensor = profile.tensors[t];
    if (tensor.alloc_op && !tensor.free_op && !tensor.foreign)
      outgoing[tensor.bytes].tensors.push_back(t);
  }
  std::map<std::uint32_t, std::uint32_t> pairs;
  for (std::uint32_t t = 0; t < profile.tensors.size(); ++t) {
    const Tensor& tensor = profile.tensors[t];
    if (tensor.alloc_op || !tensor.free_op || tensor.foreign || tensor.bytes == 0) continue;
    auto& [same_size, taken, head] = outgoing[tensor.bytes];
    taken.resize(same_size.size(), false);
    std::size_t at = head;
    while (at < same_size.size() &&
           (taken[at] || *profile.tensors[same_size[at]].alloc_op <= *tensor.free_op))
      ++at;
    if (at == same_size.size()) continue;
    pairs[t] = same_size[at];
    taken[at] = true;
    while (head < taken.size() && taken[head]) ++head;
  }
  return pairs;
}

std::uint64_t openings(const TensorCount& count) { return count.reads + count.writes; }

void add_uses(Storage& storage, const std::vector<OpId>& ops, std::uint32_t shift) {
  for (OpId op : ops) {
    const std::uint32_t position = op.value + shift;
    if (position >= storage.first && position <= storage.last) storage.uses.push_back(position);
  }
}

// Allocation is a use: the frames are needed from then on. A tensor nobody names (a workspace, an
// output never written) is taken to be used at both ends of its life.
void add_lifetime_uses(Storage& storage) {
  if (storage.persistent) return;
  if (storage.uses.empty()) storage.uses.push_back(storage.last);
  storage.uses.push_back(storage.first);
}

void sort_unique(std::vector<std::uint32_t>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

}  // namespace

std::vector<Storage> storages(const Profile& profile) {
  const auto lives = lifetimes(profile);
  const auto used = uses(profile);
  const auto counted = counts(profile);
  const auto pairs = carried_pairs(profile);
  std::map<std::uint32_t, std::uint32_t> older;
  for (const auto& [in, out] : pairs) older[out] = in;

  std::vector<Storage> all;
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  for (std::uint32_t t = 0; t < profile.tensors.size(); ++t) {
    const Tensor& tensor = profile.tensors[t];
    if (tensor.foreign || tensor.bytes == 0 || ops == 0 || pairs.contains(t)) continue;
    const Lifetime& life = lives[t];
    Storage s{.tensor = TensorId(t),
              .persistent = life.persistent,
              .first = life.first_op.value,
              .last = life.last_op.value,
              .first_layer = life.first_layer,
              .last_layer = life.last_layer,
              .bytes = tensor.bytes,
              .accesses = openings(counted[t])};
    if (const auto before = older.find(t); before != older.end()) {
      s.carried = TensorId(before->second);
      s.last = ops + lives[before->second].last_op.value;
      s.last_layer = lives[before->second].last_layer;
      s.accesses += openings(counted[before->second]);
      add_uses(s, used[before->second], ops);
    }
    add_uses(s, used[t], 0);
    add_lifetime_uses(s);
    sort_unique(s.uses);
    all.push_back(std::move(s));
  }
  return all;
}

bool reads(const Profile& profile, const Storage& s, std::uint32_t position) {
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  const Op& op = profile.ops[position % ops];
  const TensorId t = s.at(position, ops);
  return std::ranges::binary_search(op.in, t) || !std::ranges::binary_search(op.out, t);
}

Writes::Writes(const Profile& profile) : ops_(profile.tensors.size()) {
  for (std::uint32_t k = 0; k < profile.ops.size(); ++k)
    for (TensorId t : profile.ops[k].out) ops_[t.index()].push_back(k);
  for (const AccessCount& a : profile.accesses)
    if (a.writes > 0) ops_[a.tensor.index()].push_back(a.op.value);
  for (auto& list : ops_) sort_unique(list);
}

bool Writes::operator()(TensorId tensor, OpId op) const {
  const auto& list = ops_[tensor.index()];
  return std::binary_search(list.begin(), list.end(), op.value);
}

}  // namespace sentinel::plan
