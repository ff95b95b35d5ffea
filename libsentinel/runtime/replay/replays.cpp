// Finds chains among the recipes that are held, by the versions of what they read.
#include "runtime/replay/replays.h"

#include <algorithm>
#include <map>
#include <utility>

namespace sentinel {
namespace {

constexpr std::uint64_t kMeaningless = ~0ull;  // a version: contents that no op has made

bool has(Replays::Numbers numbers, TensorNumber number) {
  return std::ranges::find(numbers, number) != numbers.end();
}

}  // namespace

// ---------------------------------------------------------------- what ops do

void Replays::know(TensorNumber number, std::uintptr_t address, std::uint64_t bytes) {
  auto& known = known_[number];
  known.address = address, known.bytes = bytes;
}

void Replays::writes(TensorNumber number) {
  const auto found = known_.find(number);
  if (found == known_.end() || written_.contains(number)) return;
  auto& known = found->second;
  written_[number] = {number, known.version, std::move(known.maker), false};
  ++known.version;
  known.maker = nullptr;
  find_other_inputs(number);
}

// Its contents when the running op began.
Contents Replays::before_op(TensorNumber number, const Known& known) const {
  const auto found = written_.find(number);
  return found != written_.end() ? found->second
                                 : Contents{number, known.version, known.maker, false};
}

std::shared_ptr<Recipe> Replays::note(void* handle, const char* op, Numbers read, Numbers written,
                                      bool trusted) {
  auto recipe = make_recipe(dropped_);
  recipe->handle = handle, recipe->op = op, recipe->order = ++recipes_;
  recipe->trusted = trusted;
  const bool whole = has_inputs(*recipe, read, written);
  for (const auto number : written) {
    if (!knows(number)) continue;
    writes(number);
    if (!whole || reached_.contains(number)) continue;
    known_.at(number).maker = recipe;
    recipe->writes.push_back({number, known_.at(number).version});
  }
  return whole ? recipe : nullptr;
}

// Notes what the op has read, at the contents that were there when it began. False: it read what
// nobody knows, or what a part of the op has made that the recipe does not name.
bool Replays::has_inputs(Recipe& recipe, Numbers read, Numbers written) const {
  const auto reads = [&](TensorNumber number, bool own) {
    if (std::ranges::find(recipe.reads, number, &Contents::number) != recipe.reads.end()) return;
    recipe.reads.push_back(before_op(number, known_.at(number)));
    recipe.reads.back().own = own;
  };
  for (const auto number : written) {
    if (!knows(number)) return false;
    if (number <= newest_) reads(number, !has(read, number));
  }
  for (const auto number : read) {
    if (!knows(number)) return false;
    if (number <= newest_)
      reads(number, false);
    else if (!has(written, number))
      return false;
  }
  return true;
}

void Replays::reach(TensorNumber number, bool lasting) {
  auto& lasts = reached_[number];
  lasts = lasts || lasting;
  const auto found = known_.find(number);
  if (found == known_.end()) return;
  ++found->second.version;  // whatever is there from now on, no recipe makes it
  found->second.maker = nullptr;
  find_other_inputs(number);
}

// ---------------------------------------------------------------- chains

bool Replays::is_there(const Contents& contents, Numbers gone, Numbers back) const {
  const auto found = known_.find(contents.number);
  return found != known_.end() && (!found->second.lost || has(back, contents.number)) &&
         found->second.version == contents.version && !has(gone, contents.number) &&
         !reached_.contains(contents.number);
}

// What outlives the step and is updated by the op that also makes something else: the running mean
// of a normalisation. The replay's update of it is thrown away.
bool Replays::is_own_statistic(const Recipe& recipe, const Contents& contents, Numbers gone) const {
  const auto found = known_.find(contents.number);
  return contents.own && contents.number <= before_step_ && found != known_.end() &&
         !found->second.lost && !has(gone, contents.number) && recipe.writes.size() > 1 &&
         std::ranges::any_of(recipe.writes,
                             [&](const auto& write) { return write.first == contents.number; });
}

// Grows from the makers of what is wanted until each of its recipes, run in the order of the ops,
// finds what its op has read: at its address, or in the replay's own memory.
std::optional<Replays::Chain> Replays::chain(Numbers wanted, Numbers gone, std::size_t most,
                                             Numbers back) const {
  std::map<std::uint64_t, std::shared_ptr<Recipe>> recipes;
  for (const auto number : wanted) {
    const auto found = known_.find(number);
    if (found == known_.end() || !found->second.maker) return {};
    recipes.emplace(found->second.maker->order, found->second.maker);
  }
  while (recipes.size() <= most) {
    std::vector<std::shared_ptr<Recipe>> missing;
    std::vector<TensorNumber> inputs;
    std::unordered_map<TensorNumber, std::uint64_t> made;  // with its version
    for (const auto& [order, recipe] : recipes) {
      std::vector<TensorNumber> meaningless;
      for (const auto& read : recipe->reads) {
        const auto earlier = made.find(read.number);
        if (earlier == made.end() ? is_there(read, gone, back) : earlier->second == read.version) {
          if (earlier == made.end()) inputs.push_back(read.number);
        } else if (read.maker && read.maker->trusted && !recipes.contains(read.maker->order)) {
          missing.push_back(read.maker);
        } else if (earlier == made.end() && is_own_statistic(*recipe, read, gone)) {
          inputs.push_back(read.number);
          meaningless.push_back(read.number);
        } else {
          return {};
        }
      }
      for (const auto& [number, version] : recipe->writes)
        made[number] = has(meaningless, number) ? kMeaningless : version;
    }
    if (missing.empty()) {
      for (const auto number : wanted)
        if (made.at(number) != known_.at(number).version) return {};
      Chain chain;
      for (auto& [order, recipe] : recipes) chain.recipes.push_back(std::move(recipe));
      std::ranges::sort(inputs);
      inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
      chain.inputs = std::move(inputs);
      return chain;
    }
    for (auto& maker : missing) recipes.emplace(maker->order, maker);
  }
  return {};
}

// ---------------------------------------------------------------- what is lost

bool Replays::lost(TensorNumber number) const {
  const auto found = known_.find(number);
  return found != known_.end() && found->second.lost;
}

bool Replays::may_lose(TensorNumber number) const {
  const auto found = known_.find(number);
  if (found == known_.end() || running_ != 0) return false;
  const auto& known = found->second;
  const TensorNumber gone[] = {number};
  return !known.lost && !known.orphan && known.maker && known.maker->trusted &&
         !reached_.contains(number) && chain(gone, gone, kMostRecipes) && threatened(gone).empty();
}

void Replays::lose(TensorNumber number, const std::optional<ContentHash>& hash) {
  auto& known = known_.at(number);
  known.lost = true;
  known.hash = hash;
  lost_.push_back(number);
  const TensorNumber wanted[] = {number};
  if (auto found = chain(wanted, {}, kMostRecipes)) known.inputs = std::move(found->inputs);
  find_other_inputs(number);
}

void Replays::is_lost_no_more(TensorNumber number) {
  const auto found = known_.find(number);
  if (found == known_.end() || !std::exchange(found->second.lost, false)) return;
  found->second.inputs.clear();
  std::erase(lost_, number);
}

void Replays::sort_by_maker(std::vector<TensorNumber>& numbers) const {
  std::ranges::stable_sort(numbers, {}, [this](TensorNumber number) {
    const auto& maker = known_.at(number).maker;
    return maker ? maker->order : 0;
  });
}

std::vector<TensorNumber> Replays::all_lost() const {
  auto lost = lost_;
  sort_by_maker(lost);
  return lost;
}

std::vector<TensorNumber> Replays::lost_in(std::uintptr_t address, std::uint64_t bytes) const {
  std::vector<TensorNumber> found;
  for (const auto number : lost_)
    if (const auto& known = known_.at(number);
        known.address < address + bytes && address < known.address + known.bytes)
      found.push_back(number);
  return found;
}

const char* Replays::maker_of(TensorNumber number) const {
  const auto found = known_.find(number);
  return found != known_.end() && found->second.maker ? found->second.maker->op : nullptr;
}

Recipe* Replays::recipe_of(TensorNumber number) const {
  const auto found = known_.find(number);
  return found != known_.end() ? found->second.maker.get() : nullptr;
}

std::vector<TensorNumber> Replays::threatened(Numbers gone) const {
  std::vector<TensorNumber> found;
  for (const auto number : lost_) {
    if (has(gone, number)) continue;
    const auto& inputs = known_.at(number).inputs;
    const bool reads = std::ranges::any_of(
        gone, [&](auto each) { return std::ranges::binary_search(inputs, each); });
    const TensorNumber wanted[] = {number};
    if (reads && !chain(wanted, gone, kMostRecipes)) found.push_back(number);
  }
  return found;
}

// The chains that read what is no longer there go without it.
void Replays::find_other_inputs(TensorNumber gone) {
  for (const auto number : lost_) {
    auto& known = known_.at(number);
    if (!std::ranges::binary_search(known.inputs, gone)) continue;
    const TensorNumber wanted[] = {number};
    if (auto found = chain(wanted, {}, kMostRecipes)) known.inputs = std::move(found->inputs);
  }
}

// ---------------------------------------------------------------- what dies

bool Replays::dies(TensorNumber number) {
  const auto found = known_.find(number);
  if (found == known_.end()) return reached_.erase(number), false;
  const TensorNumber gone[] = {number};
  const bool needed = busy(number) || (!found->second.lost && !threatened(gone).empty());
  if (needed) {
    found->second.orphan = true;
    orphans_.push_back(number);
    return true;
  }
  is_lost_no_more(number);
  known_.erase(found);
  reached_.erase(number);
  find_other_inputs(number);
  return false;
}

bool Replays::orphan(TensorNumber number) const { return has(orphans_, number); }

std::vector<std::uintptr_t> Replays::take_unneeded() {
  std::vector<std::uintptr_t> addresses;
  for (const auto number : std::exchange(orphans_, {})) {
    const auto address = known_.at(number).address;
    if (!dies(number)) addresses.push_back(address);
  }
  return addresses;
}

// ---------------------------------------------------------------- runs

std::vector<std::vector<TensorNumber>> Replays::in_runs(Numbers targets) const {
  struct Part {
    std::vector<TensorNumber> targets;
    std::vector<std::uint64_t> orders;  // of its recipes
  };
  std::vector<TensorNumber> order(targets.begin(), targets.end());
  sort_by_maker(order);
  std::vector<Part> parts;
  for (std::size_t i = 0; i < order.size(); ++i) {
    Part part{.targets = {order[i]}};
    const Numbers wanted(&order[i], 1), before(order.data(), i);
    if (const auto found = chain(wanted, {}, ~std::size_t{0}, before))
      for (const auto& recipe : found->recipes) part.orders.push_back(recipe->order);
    const auto shares = [&](const Part& other) {
      return std::ranges::find_first_of(other.orders, part.orders) != other.orders.end();
    };
    const auto first = std::ranges::find_if(parts, shares);
    for (auto at = parts.rbegin(); at.base() != first; ++at) {
      part.targets.insert(part.targets.begin(), at->targets.begin(), at->targets.end());
      part.orders.insert(part.orders.begin(), at->orders.begin(), at->orders.end());
    }
    parts.erase(first, parts.end());
    parts.push_back(std::move(part));
  }
  std::vector<std::vector<TensorNumber>> runs;
  for (Part& part : parts) runs.push_back(std::move(part.targets));
  return runs;
}

std::optional<Replays::Run> Replays::run_for(Numbers targets) const {
  auto found = chain(targets, {}, ~std::size_t{0});
  if (!found) return {};
  Run run{.recipes = std::move(found->recipes), .inputs = std::move(found->inputs)};
  for (const auto number : targets) {
    const auto& known = known_.at(number);
    run.targets.push_back({number, known.address, known.bytes, known.hash, known.maker->op});
  }
  return run;
}

std::span<const std::byte> Replays::contents(TensorNumber number) const {
  const auto& known = known_.at(number);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return {reinterpret_cast<const std::byte*>(known.address), known.bytes};
}

std::optional<Replays::Run> Replays::trial_of(const Recipe& recipe) const {
  Run run;
  std::vector<TensorNumber> made;
  for (const auto& [number, version] : recipe.writes) {
    const auto read = std::ranges::find(recipe.reads, number, &Contents::number);
    if (read != recipe.reads.end() && read->own) continue;
    const auto found = known_.find(number);
    if (found == known_.end() || found->second.version != version || found->second.lost) return {};
    run.targets.push_back({number, found->second.address, found->second.bytes, {}, recipe.op});
    made.push_back(number);
  }
  auto found = chain(made, made, kMostRecipes);
  if (made.empty() || !found) return {};
  run.recipes = std::move(found->recipes);
  run.inputs = std::move(found->inputs);
  return run;
}

void Replays::begin(const Run& run) {
  ++running_;
  for (const auto number : run.inputs) ++known_.at(number).readers;
  for (const auto& target : run.targets) ++known_.at(target.number).makers;
}

void Replays::end(Run run) {
  --running_;
  for (const auto number : run.inputs) --known_.at(number).readers;
  for (const auto& target : run.targets) {
    --known_.at(target.number).makers;
    is_lost_no_more(target.number);
  }
}

bool Replays::busy(TensorNumber number) const {
  const auto found = known_.find(number);
  return found != known_.end() && found->second.readers + found->second.makers != 0;
}

void Replays::forget(TensorNumber newest) {
  known_.clear();
  written_.clear();
  std::erase_if(reached_, [](const auto& reached) { return !reached.second; });
  before_step_ = newest_ = newest;
}

std::vector<void*> Replays::take_dropped() { return std::exchange(*dropped_, {}); }

}  // namespace sentinel
