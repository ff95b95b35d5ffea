// Builds the cost model's items, needs and event lists from a step.
#include "plan/search/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/units.h"
#include "plan/gaps/pressure.h"
#include "plan/step/level.h"
#include "plan/step/rates.h"
#include "sentinel/error.h"

namespace sentinel::plan {
namespace {

// A replay so many transfer times, of the larger of both, before an item's own use decides when it
// is fetched.
constexpr double kNear = 2;
constexpr std::uint64_t kPage = 4096;

std::int64_t ticks_of(double us) { return std::llround(us * kTicksPerUs); }

std::int64_t transfer_ticks(const Machine& machine, std::uint32_t from, std::uint32_t to,
                            std::uint64_t bytes) {
  const double latency = machine.tiers[std::max(from, to)].latency_us;
  return ticks_of(latency + static_cast<double>(bytes) / rate(machine, from, to));
}

}  // namespace

// Finds the nodes of each item's replay chain: its maker, the makers of inputs that are dead by
// then, and, to be used where another item's choice makes an input absent, that input's maker. A
// chain has one node for an op. What it cannot do without comes first, so that the cap on their
// number cuts what may be there anyhow.
class CostModel::Chains {
 public:
  Chains(CostModel& model, const CostInput& in) : model_(model), in_(in), replay_(in.profile) {
    of_tensor_.resize(in.profile.tensors.size());
    for (std::uint32_t i = 0; i < model.items_.size(); ++i) {
      const Storage& s = in.storages[model.gaps_[i].storage];
      of_tensor_[s.at(model.items_[i].use, model.ops()).index()].push_back(i);
    }
  }

  void find(std::uint32_t i) {
    const Item& item = model_.items_[i];
    const std::uint32_t ops = model_.ops();
    if (item.next >= ops) return;  // made in another step
    const TensorId t = in_.storages[model_.gaps_[i].storage].at(item.use, ops);
    const std::size_t nodes = model_.nodes_.size(), edges = model_.edges_.size();
    first_ = nodes;
    wanted_ = {i, t};
    before_ = OpId(item.next);
    of_op_.clear();
    perhaps_.clear();
    const std::uint32_t root = node(t, before_);
    if (root == kNone) {
      model_.nodes_.resize(nodes);
      model_.edges_.resize(edges);
      return;
    }
    model_.items_[i].chain = root;
    model_.nodes_[root].ticks +=
        ticks_of(remaking_us(in_.machine, static_cast<double>(item.bytes)));
    for (std::size_t at = 0; at < perhaps_.size(); ++at) {
      const auto [edge, tensor, reader] = perhaps_[at];
      const std::uint32_t maker = node(tensor, reader);
      model_.edges_[edge].node = maker;
    }
  }

 private:
  struct Perhaps {  // an edge whose item may be there
    std::size_t edge;
    TensorId tensor;
    OpId reader;
  };

  // The item whose gap spans op k, so that its choice decides whether the tensor is there.
  std::uint32_t spanning(TensorId t, std::uint32_t k) const {
    for (std::uint32_t i : of_tensor_[t.index()])
      if (model_.items_[i].use < k && k <= model_.items_[i].next) return i;
    return kNone;
  }

  // What makes the contents of `t` that op `at` reads.
  std::uint32_t node(TensorId t, OpId at) {
    const auto maker = replay_.maker(t, at);
    if (!maker || !replay_.possible(*maker)) return kNone;
    const auto [found, is_new] = of_op_.emplace(*maker, kNone);
    return is_new ? found->second = new_node(*maker) : found->second;
  }

  // Nodes of a chain that turns out illegal stay allocated and unused; the cap on their number
  // bounds that.
  std::uint32_t new_node(OpId maker) {
    if (model_.nodes_.size() - first_ >= kMostReplays) return kNone;
    const Op& op = in_.profile.ops[maker.index()];
    const auto id = static_cast<std::uint32_t>(model_.nodes_.size());
    model_.nodes_.push_back({.op = maker.value, .ticks = ticks_of(op.us)});
    const bool apart = in_.basis != nullptr;  // then all outputs are made beside all else
    for (TensorId o : op.out)
      if (apart || o != wanted_.tensor)
        model_.nodes_[id].held += round_up(in_.profile.tensors[o.index()].bytes,
                                           apart ? kPage : in_.machine.granule_bytes);
    std::vector<Edge> edges;
    std::vector<std::pair<std::size_t, TensorId>> perhaps;
    for (TensorId x : op.in) {
      if (replay_.own_statistic(x, maker)) continue;
      const bool there =
          replay_.version(x, maker) == replay_.version(x, before_) && replay_.alive(x, before_);
      const std::uint32_t item = there ? spanning(x, before_.value) : kNone;
      if (there && item == kNone) continue;
      if (item == wanted_.item) return kNone;
      if (there) perhaps.emplace_back(edges.size(), x);
      edges.push_back({item, there ? kNone : node(x, maker)});
      if (!there && edges.back().node == kNone) return kNone;
    }
    const std::size_t first = model_.edges_.size();
    for (const auto& [edge, x] : perhaps) perhaps_.push_back({first + edge, x, maker});
    model_.nodes_[id].edges = static_cast<std::uint32_t>(first);
    model_.edges_.insert(model_.edges_.end(), edges.begin(), edges.end());
    model_.nodes_[id].edges_end = static_cast<std::uint32_t>(model_.edges_.size());
    return id;
  }

  CostModel& model_;
  const CostInput& in_;
  Replay replay_;
  std::vector<std::vector<std::uint32_t>> of_tensor_;
  std::size_t first_ = 0;                // node of the present chain
  std::map<OpId, std::uint32_t> of_op_;  // its nodes; kNone: nothing legal
  std::vector<Perhaps> perhaps_;         // of it, the nearest first
  struct {
    std::uint32_t item = kNone;
    TensorId tensor;
  } wanted_;
  OpId before_;
};

CostModel::CostModel(const CostInput& in) : limit_(in.limit), gaps_(in.gaps) {
  if (in.machine.tiers.size() < 2 || in.machine.tiers.size() > kMostTiers)
    throw Error(fmt::format("machine {} has {} tiers; plans are made for 2 to {}", in.machine.name,
                            in.machine.tiers.size(), kMostTiers));
  for (const TierSpec& t : in.machine.tiers)
    capacity_.push_back(t.capacity == 0 ? UINT64_MAX / 2 : t.capacity);
  capacity_.back() = UINT64_MAX / 2;  // takes what fits nowhere else
  for (const Op& op : in.profile.ops) {
    starts_.push_back(ideal_);
    ticks_.push_back(ticks_of(op.us));
    ideal_ += ticks_.back();
  }
  hold_base(in);
  make_items(in);
  if (in.recompute) {
    Chains chains(*this, in);
    for (std::uint32_t i = 0; i < items_.size(); ++i) chains.find(i);
  }
  find_needs(in);
  place_fetches(in);
  const auto by = [&](auto position) { return lists(position); };
  out_ = by([](const Item& i) { return i.use; });
  in_ = by([](const Item& i) { return i.in; });
  next_ = by([](const Item& i) { return i.next; });
}

void CostModel::hold_base(const CostInput& in) {
  if (in.basis != nullptr) {
    held_.assign(in.basis->demand.all.begin(), in.basis->demand.all.end());
    return;
  }
  std::vector<std::int64_t> change(ops() + 1, 0);
  const auto add = [&](std::uint32_t first, std::uint32_t last, std::int64_t bytes) {
    change[first] += bytes;
    change[last + 1] -= bytes;
  };
  for (const Storage& s : in.storages) {
    const auto bytes = static_cast<std::int64_t>(round_up(s.bytes, in.machine.granule_bytes));
    if (s.first < ops()) add(s.first, std::min(s.last, ops() - 1), bytes);
    if (s.last >= ops()) add(s.first < ops() ? 0 : s.first - ops(), s.last - ops(), bytes);
  }
  std::int64_t held = 0;
  for (std::uint32_t k = 0; k < ops(); ++k) held_.push_back(held += change[k]);
}

void CostModel::make_items(const CostInput& in) {
  for (const IdleGap& gap : gaps_) {
    Item item{.use = gap.use,
              .in = gap.next,
              .next = gap.next,
              .bytes = gap.bytes,
              .held = round_up(gap.bytes, in.machine.granule_bytes),
              .dirty = gap.dirty};
    if (in.basis != nullptr) item.held = freed_bytes(in.basis->footprint, in.storages[gap.storage]);
    for (std::uint32_t t = 1; t < tiers(); ++t) {
      item.out_ticks[t] = transfer_ticks(in.machine, 0, t, gap.bytes);
      item.in_ticks[t] = transfer_ticks(in.machine, t, 0, gap.bytes);
    }
    items_.push_back(item);
  }
}

// What is read by a replay shortly before its own use is fetched for that one.
void CostModel::find_needs(const CostInput& in) {
  for (const Item& item : items_) needs_.push_back(item.next);
  for (const Item& reader : items_)
    for (std::uint32_t n : chain_nodes(reader))
      for (const Edge& e : edges(nodes_[n])) {
        if (e.item == kNone) continue;
        const Item& read = items_[e.item];
        const double near = std::max(in.lead, kNear) *
                            static_cast<double>(std::max(read.in_ticks[1], reader.in_ticks[1]));
        if (reader.next < read.next && reader.next > read.use &&
            static_cast<double>(starts_at(read.next) - starts_at(reader.next)) <= near)
          needs_[e.item] = std::min(needs_[e.item], reader.next);
      }
}

// Who is needed first chooses first.
void CostModel::place_fetches(const CostInput& in) {
  Level level(std::vector<std::uint64_t>(held_.begin(), held_.end()));
  for (std::uint32_t i = 0; i < items_.size(); ++i)
    level.add(items_[i].use + 1, needs_[i], -static_cast<std::int64_t>(items_[i].held));
  std::vector<std::uint64_t> taken;  // of the limit: what ops need, and what is not to be filled
  const auto limit = static_cast<std::int64_t>(in.limit);
  for (std::uint32_t k = 0; k < ops(); ++k) {
    const std::int64_t must = level.at(k);
    const auto kept_free =
        (1 - in.window) * static_cast<double>(std::max<std::int64_t>(limit - must, 0));
    taken.push_back(static_cast<std::uint64_t>(must) + static_cast<std::uint64_t>(kept_free));
  }
  Level filled(taken);
  std::vector<std::uint32_t> order(items_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return needs_[i]; });
  for (std::uint32_t i : order) {
    Item& item = items_[i];
    const auto bytes = static_cast<std::int64_t>(item.held);
    std::uint32_t from = latest_start(item, needs_[i], in.lead);
    if (const auto full = filled.last_above(from, needs_[i], limit - bytes)) from = *full + 1;
    filled.add(from, needs_[i], bytes);
    item.in = from;
  }
}

// The latest position after the item's use that lies `lead` transfer times before its need.
std::uint32_t CostModel::latest_start(const Item& item, std::uint32_t need, double lead) const {
  const std::int64_t wanted =
      starts_at(need) - static_cast<std::int64_t>(lead * static_cast<double>(item.in_ticks[1]));
  std::uint32_t low = item.use + 1, high = need;  // starts_at(high) > wanted, or high == low
  if (lead <= 0) return need;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (starts_at(middle) > wanted)
      high = middle;
    else
      low = middle + 1;
  }
  return std::max(item.use + 1, low - 1);
}

template <class Position>
CostModel::Lists CostModel::lists(Position position) const {
  Lists result;
  result.begin.assign(ops() + 1, 0);
  for (const Item& item : items_) ++result.begin[position(item) % ops() + 1];
  for (std::uint32_t k = 0; k < ops(); ++k) result.begin[k + 1] += result.begin[k];
  result.items.resize(items_.size());
  std::vector<std::uint32_t> at(result.begin.begin(), result.begin.end() - 1);
  for (std::uint32_t i = 0; i < items_.size(); ++i)
    result.items[at[position(items_[i]) % ops()]++] = i;
  for (std::uint32_t k = 0; k < ops(); ++k)  // what is needed first goes first
    std::stable_sort(result.items.begin() + result.begin[k],
                     result.items.begin() + result.begin[k + 1],
                     [&](auto a, auto b) { return items_[a].next < items_[b].next; });
  return result;
}

// Those that are replayed even if every other item is kept.
std::vector<std::uint32_t> CostModel::chain_nodes(const Item& item) const {
  std::vector<std::uint32_t> nodes;
  if (item.chain != kNone) nodes.push_back(item.chain);
  for (std::size_t at = 0; at < nodes.size(); ++at)
    for (const Edge& e : edges(nodes_[nodes[at]]))
      if (e.item == kNone && std::ranges::find(nodes, e.node) == nodes.end())
        nodes.push_back(e.node);
  return nodes;
}

std::vector<std::uint32_t> CostModel::read_by_replay(std::uint32_t item) const {
  std::vector<std::uint32_t> read;
  for (std::uint32_t n : chain_nodes(items_[item]))
    for (const Edge& e : edges(nodes_[n]))
      if (e.item != kNone) read.push_back(e.item);
  return read;
}

std::int64_t CostModel::replay_ticks(std::uint32_t item) const {
  std::int64_t sum = 0;
  for (std::uint32_t n : chain_nodes(items_[item])) sum += nodes_[n].ticks;
  return sum;
}

std::vector<Decision> CostModel::decisions(std::span<const Remedy> choices,
                                           std::span<const std::uint8_t> tier) const {
  std::vector<Decision> list;
  for (std::uint32_t i = 0; i < items_.size(); ++i)
    if (choices[i] != Remedy::keep)
      list.push_back({.storage = gaps_[i].storage,
                      .use = gaps_[i].use,
                      .next = gaps_[i].next,
                      .remedy = choices[i],
                      .tier = std::max<std::uint32_t>(tier[i], 1),
                      .fetch = items_[i].in});
  return list;
}

}  // namespace sentinel::plan
