// Prices link time over a range, and takes the cheaper remedy of each gap at each price.
#include "plan/search/choice_seeds.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "plan/step/level.h"

namespace sentinel::plan {
namespace {

// A swap costs its transfer times as far as compute does not hide them: the unknown share of link
// time that a step pays for.
constexpr std::array kPrices{0.0, 0.1, 0.3, 0.6, 1.0, 2.0, 1e9};

// How many items that are recomputed may follow from one another: the next one is a checkpoint.
constexpr std::array kDepths{1u, 2u, 4u};

struct Offer {  // the cheaper remedy of an item
  Remedy remedy = Remedy::swap;
  double cost = 0;
};

Offer offer(const CostModel& model, std::uint32_t i, double price) {
  const CostModel::Item& item = model.item(i);
  const double link = static_cast<double>(item.in_ticks[1] + (item.dirty ? item.out_ticks[1] : 0));
  Offer best{Remedy::swap, price * link};
  if (model.recomputable(i))
    if (const auto replay = static_cast<double>(model.replay_ticks(i)); replay < best.cost)
      best = {Remedy::recompute, replay};
  return best;
}

std::vector<Offer> offers_at(const CostModel& model, double price, std::uint32_t depth) {
  std::vector<Offer> offers;
  std::vector<std::uint32_t> order(model.size()), depths(model.size(), 0);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint32_t i = 0; i < model.size(); ++i) offers.push_back(offer(model, i, price));
  const auto maker = [&](std::uint32_t i) {
    return model.recomputable(i) ? model.node(model.item(i).chain).op : 0;
  };
  std::ranges::stable_sort(order, {}, maker);  // what is read comes before what reads it
  for (std::uint32_t i : order) {
    if (offers[i].remedy != Remedy::recompute) continue;
    for (std::uint32_t read : model.read_by_replay(i))
      depths[i] = std::max(depths[i], depths[read]);
    if (++depths[i] <= depth) continue;
    depths[i] = 0;
    offers[i] = {Remedy::swap, offers[i].cost};
  }
  return offers;
}

// Items in the order of `cost` over what they give, until no op holds too much.
std::vector<Remedy> as_needed(const CostModel& model, const std::vector<Offer>& offers,
                              bool by_time) {
  std::vector<std::uint32_t> order(model.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto key = [&](std::uint32_t i) {
    const CostModel::Item& item = model.item(i);
    const double gives = static_cast<double>(item.held + 1) * (by_time ? item.next - item.use : 1);
    return offers[i].cost / gives;
  };
  std::ranges::stable_sort(order, [&](auto a, auto b) {
    const double x = key(a), y = key(b);
    if (x != y) return x < y;
    return model.item(a).next - model.item(a).use > model.item(b).next - model.item(b).use;
  });
  const std::vector<std::uint64_t> kept(model.held().begin(), model.held().end());
  Level held(kept);
  std::vector<Remedy> choices(model.size(), Remedy::keep);
  const auto limit = static_cast<std::int64_t>(model.limit());
  for (std::uint32_t i : order) {
    const CostModel::Item& item = model.item(i);
    const std::uint32_t begin = item.use + 1,
                        end = offers[i].remedy == Remedy::swap ? item.in : item.next;
    if (begin >= end || held.most(begin, end) <= limit) continue;
    choices[i] = offers[i].remedy;
    held.add(begin, end, -static_cast<std::int64_t>(item.held));
  }
  return choices;
}

}  // namespace

std::vector<std::vector<Remedy>> choice_seeds(const CostModel& model,
                                              std::chrono::steady_clock::time_point deadline) {
  std::vector<std::vector<Remedy>> seeds;
  for (double price : kPrices)
    for (std::uint32_t depth : kDepths) {
      if (price == 0 && depth != kDepths.front()) continue;  // nothing is recomputed
      if (!seeds.empty() && std::chrono::steady_clock::now() >= deadline) return seeds;
      const std::vector<Offer> offers = offers_at(model, price, depth);
      std::vector<Remedy> all;
      for (const Offer& o : offers) all.push_back(o.remedy);
      seeds.push_back(std::move(all));
      seeds.push_back(as_needed(model, offers, false));
      seeds.push_back(as_needed(model, offers, true));
    }
  return seeds;
}

}  // namespace sentinel::plan
