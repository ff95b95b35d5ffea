// Builds storages from a profile's tensors: their uses, their lives, and what they carry over.
#include "plan/step/storage.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "sentinel/analysis.h"

namespace sentinel::plan {
namespace {

std::uint64_t openings(const TensorCount& count) { return count.reads + count.writes; }

void add_uses(Storage& storage, const std::vector<OpId>& ops, std::uint32_t shift) {
  for (OpId op : ops) {
    const std::uint32_t position = op.value + shift;
    if (position >= storage.first && position <= storage.last) storage.uses.push_back(position);
  }
}

// Allocation is a use: the frames are needed from then on. A tensor nobody names (a workspace, an
// output never written) is taken to be used at both ends of its life; what the step before left
// behind, and nobody names any more, is not used again.
void add_lifetime_uses(Storage& storage, bool made) {
  if (storage.persistent) return;
  if (storage.uses.empty() && made) storage.uses.push_back(storage.last);
  storage.uses.push_back(storage.first);
}

void sort_unique(std::vector<std::uint32_t>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

}  // namespace

std::vector<Left> left_behind(const Profile& profile) {
  std::map<std::uint64_t, std::queue<TensorId>> made;  // of one size, in order
  for (std::size_t t = 0; t < profile.tensors.size(); ++t) {
    const Tensor& tensor = profile.tensors[t];
    if (tensor.alloc_op && !tensor.free_op && !tensor.foreign) made[tensor.bytes].emplace(t);
  }
  std::vector<Left> all;
  for (std::size_t t = 0; t < profile.tensors.size(); ++t) {
    const Tensor& tensor = profile.tensors[t];
    if (tensor.alloc_op || !tensor.free_op || tensor.foreign || tensor.bytes == 0) continue;
    auto& next = made[tensor.bytes];
    if (next.empty()) continue;
    const auto again = *profile.tensors[next.front().index()].alloc_op;
    all.push_back({TensorId(t), next.front(), again <= *tensor.free_op});
    next.pop();
  }
  return all;
}

std::vector<Storage> storages(const Profile& profile) {
  const auto lives = lifetimes(profile);
  const auto used = uses(profile);
  const auto counted = counts(profile);
  std::map<std::uint32_t, std::uint32_t> older;
  std::set<std::uint32_t> carried;
  std::set<std::uint32_t> read_next;  // as another storage of the next step: it has to be there
  for (const Left& left : left_behind(profile))
    if (!left.beside) {
      older[left.now.value] = left.before.value;
      carried.insert(left.before.value);
    } else if (!used[left.before.index()].empty()) {
      read_next.insert(left.now.value);
    }

  std::vector<Storage> all;
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  for (std::uint32_t t = 0; t < profile.tensors.size(); ++t) {
    const Tensor& tensor = profile.tensors[t];
    if (tensor.foreign || tensor.bytes == 0 || ops == 0 || carried.contains(t)) continue;
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
    if (read_next.contains(t)) s.uses.push_back(ops - 1);
    add_lifetime_uses(s, tensor.alloc_op.has_value());
    sort_unique(s.uses);
    all.push_back(std::move(s));
  }
  return all;
}

bool writes(const Profile& profile, const Storage& s, std::uint32_t position) {
  const auto ops = static_cast<std::uint32_t>(profile.ops.size());
  return std::ranges::binary_search(profile.ops[position % ops].out, s.at(position, ops));
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
