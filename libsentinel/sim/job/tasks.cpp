// Lists an op's replays before the op itself.
#include "sim/job/tasks.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "base/units.h"
#include "plan/step/footprint.h"
#include "plan/step/replay.h"
#include "sentinel/error.h"

namespace sentinel::sim {
namespace {

constexpr std::uint64_t kPage = 4096;

}  // namespace

void Tasks::plan(OpId op, std::span<const Recompute> replays) {
  tasks_.clear();
  if (plan::shares_granules(granule_bytes_))
    plan_apart(op, replays);
  else
    plan_replays(op, replays);
  tasks_.push_back({.op = op, .operands = uses_.of(op)});
  at_ = 0;
}

// As a training run replays: in runs, each into memory of its own, out of which what is kept is
// copied. There each tensor lies until the run's last replay that uses it.
void Tasks::plan_apart(OpId before, std::span<const Recompute> replays) {
  std::set<StorageId> made;
  for (const auto& run : plan::replay_runs(profile_, replays)) {
    std::map<StorageId, std::size_t> last;  // of what the run writes: the task that uses it last
    const std::size_t first = tasks_.size();
    for (std::size_t i : run) plan_apart(before, replays[i], made, last);
    for (const auto& [storage, task] : last)
      tasks_[task].scratch_ends += round_up(residence_.storage(storage).bytes, kPage);
    for (std::size_t i = 0; i < run.size(); ++i)
      for (TensorId t : replays[run[i]].keep) {
        const StorageId storage = residence_.of(t);
        const auto at = last.find(storage);
        Task& task = tasks_[at == last.end() ? first + i : at->second];
        task.operands.push_back({storage, false, true, true});
        task.copied_bytes += residence_.storage(storage).bytes;
      }
  }
}

void Tasks::plan_apart(OpId before, const Recompute& r, std::set<StorageId>& made,
                       std::map<StorageId, std::size_t>& last) {
  Task task{.op = r.op, .replay = true};
  std::vector<StorageId> written;
  for (Operand o : uses_.of(r.op)) {
    if (!o.named) continue;
    const plan::Storage& storage = residence_.storage(o.storage);
    const Whereabouts place = residence_.place(o.storage);
    const bool gone = place == Whereabouts::nowhere || place == Whereabouts::lost;
    if (o.read && gone && !made.contains(o.storage))
      throw Error(fmt::format("the replay of op {} before op {} reads tensor {}, which is gone",
                              r.op.value, before.value, storage.tensor.value));
    if (o.written && !last.contains(o.storage))
      task.scratch_bytes += round_up(storage.bytes, kPage);
    if (o.written || last.contains(o.storage)) last[o.storage] = tasks_.size();
    if (o.written && !storage.persistent) written.push_back(o.storage);
    o.written = false;
    if (o.read && !made.contains(o.storage)) task.operands.push_back(o);
  }
  made.insert(written.begin(), written.end());
  tasks_.push_back(std::move(task));
}

// What a replay makes and the plan does not keep lives until the last replay here that reads it.
// What exists in a later version is made beside it, in scratch space. Persistent tensors are not
// written.
void Tasks::plan_replays(OpId before, std::span<const Recompute> replays) {
  std::set<StorageId> kept;
  for (const Recompute& r : replays)
    for (TensorId t : r.keep) kept.insert(residence_.of(t));
  std::map<StorageId, std::size_t> last;    // made and not kept: the task that reads it last
  std::map<StorageId, std::size_t> beside;  // made beside a later version: the same
  for (const Recompute& r : replays) {
    Task task{.op = r.op, .replay = true};
    for (Operand o : uses_.of(r.op)) {
      if (!o.named) continue;
      const plan::Storage& storage = residence_.storage(o.storage);
      const Whereabouts place = residence_.place(o.storage);
      const bool gone = place == Whereabouts::nowhere || place == Whereabouts::lost;
      const bool apart =
          o.written && !gone && !kept.contains(o.storage) && !(storage.persistent && o.read);
      if (apart && !beside.contains(o.storage))
        task.scratch_bytes += round_up(storage.bytes, granule_bytes_);
      if (apart || beside.contains(o.storage)) {
        beside[o.storage] = tasks_.size();
        continue;
      }
      if (gone && !o.written && !last.contains(o.storage) && !kept.contains(o.storage))
        throw Error(fmt::format("the replay of op {} before op {} reads tensor {}, which is gone",
                                r.op.value, before.value, storage.tensor.value));
      if (gone && !kept.contains(o.storage)) last[o.storage] = tasks_.size();
      o.written &= !storage.persistent;
      task.operands.push_back(o);
    }
    tasks_.push_back(std::move(task));
  }
  for (const auto& [storage, task] : last) tasks_[task].drop.push_back(storage);
  for (const auto& [storage, task] : beside)
    tasks_[task].scratch_ends += round_up(residence_.storage(storage).bytes, granule_bytes_);
}

}  // namespace sentinel::sim
