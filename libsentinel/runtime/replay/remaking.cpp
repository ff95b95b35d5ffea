// Runs chains without the session's lock, and keeps what is known of tensors in step with them.
#include "runtime/replay/remaking.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/quiet_thread.h"
#include "base/units.h"
#include "runtime/limit/voice.h"
#include "runtime/step/trial.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

thread_local bool replaying = false, trying = false;

constexpr std::uintptr_t kPage = 4096;

const void* pointer(const LiveTensor& tensor) {
  return reinterpret_cast<const void*>(tensor.address);  // NOLINT(performance-no-int-to-ptr)
}

// What is away would come from the drive to be hashed.
bool is_resident(const LiveTensor& tensor) {
  const auto first = round_down(tensor.address, kPage);
  const auto bytes = round_up(tensor.address + tensor.bytes, kPage) - first;
  std::vector<unsigned char> pages(bytes / kPage);
  return mincore(reinterpret_cast<void*>(first), bytes, pages.data()) == 0 &&
         std::ranges::all_of(pages, [](unsigned char page) { return (page & 1) != 0; });
}

}  // namespace

// Where slow memory is used in place no touch could wait for a replay. A device's touches name
// their tensors before.
Remaking::Remaking(Engine& engine, Space& space, DeviceLane& lane, std::mutex& lock, OpOrder order,
                   const std::string& inject)
    : engine_(engine),
      contents_(engine.device() != nullptr ? engine.device()->contents() : nullptr),
      view_(contents_),
      space_(space),
      lane_(lane),
      lock_(lock),
      order_(order),
      can_(contents_ != nullptr ||
           (order == OpOrder::sequence && engine.guarded() && engine.in_place() == nullptr)),
      spoiling_(inject),
      hashed_{.all = std::getenv("SENTINEL_WITNESS") != nullptr} {}

void Remaking::use(const sentinel_replayer& replayer) {
  if (!can_ || replayer_.exchange(&replayer) != nullptr) return;
  engine_.remake_with(this);
  if (contents_ == nullptr)
    quiet_thread([this, touches = touches_] {
      serve_touches(*touches);
    }).detach();  // as long as the process lives
}

bool Remaking::replays_here() { return replaying; }

// Two runs of an op that leaves some of what it makes as it was agree by luck on fresh memory.
void Remaking::soil(void* memory, std::size_t bytes) noexcept {
  constexpr unsigned char kSoil = 0xa5;
  if (trying && memory != nullptr)
    view_.fill(reinterpret_cast<std::uintptr_t>(memory), bytes, kSoil);
}

LiveTensor* Remaking::living(const LiveTensor& tensor) {
  auto* now = space_.find(pointer(tensor));
  return now != nullptr && now->birth == tensor.birth ? now : nullptr;
}

// ---------------------------------------------------------------- one op

void Remaking::op_begins(Op& op, const char* name, bool follows, std::uint64_t role) {
  op.name = name, op.role = role;
  overlap_.open += std::exchange(op.open, true) ? 0 : 1;
  overlap_.crossed |= order_ == OpOrder::any && overlap_.open > 1;
  op.untried.reset();
  op.lost.clear(), op.written.clear(), op.overwritten.clear(), op.discards.clear();
  follows_ = follows;
  if (follows) replays_.op_begins(space_.births());
}

bool Remaking::names(Op& op, const LiveTensor& tensor, bool writes, bool overwrites) {
  const auto number = number_of(tensor);
  if (writes && overwrites)
    op.overwritten.push_back(tensor);
  else if (replays_.lost(number))
    op.lost.push_back(number);
  if (writes) op.written.push_back(number);
  return writes && overwrites;
}

void Remaking::names_part(Op& op, std::uintptr_t address, std::uint64_t bytes) {
  std::ranges::copy(replays_.lost_in(address, bytes), std::back_inserter(op.lost));
}

// What was open at the same time as another is described no more: what it has read is known by the
// order in which ops begin and compute.
void Remaking::op_closes(Op& op) {
  if (std::exchange(op.open, false) && --overlap_.open == 0) overlap_.crossed = false;
}

Remaking::Guard Remaking::ready(Op& op) {
  Guard guard(lock_);
  const auto lost = std::exchange(op.lost, {}), written = std::exchange(op.written, {});
  for (;;) {
    auto wanted = lost;
    std::ranges::copy(replays_.threatened(written), std::back_inserter(wanted));
    remake(guard, wanted);
    const bool busy = std::ranges::any_of(written, [&](auto each) { return replays_.busy(each); });
    if (busy)
      run_over_.wait(guard);
    else if (std::ranges::none_of(lost, [&](auto each) { return replays_.lost(each); }) &&
             replays_.threatened(written).empty())
      break;
  }
  for (const auto number : written) replays_.writes(number);
  return guard;
}

// What it named only after it ran.
void Remaking::op_computed(Op& op) {
  for (const auto number : std::exchange(op.written, {})) replays_.writes(number);
}

void Remaking::op_ended(Op& op) {
  if (op.untried) try_out(op);
  std::erase_if(op.discards, [this](const Discard& due) { return discard(due.tensor, due.ends); });
  Guard guard(lock_);
  let_go(guard, false);
}

TensorNumber Remaking::number(const LiveTensor& tensor) {
  const auto number = number_of(tensor);
  if (follows()) replays_.know(number, tensor.address, tensor.bytes);
  return number;
}

bool Remaking::repeats(std::uint64_t role) const {
  const auto known = tried_.find(role);
  return known == tried_.end() || known->second;
}

void Remaking::note(void* recipe, Op& op, Replays::Numbers read, Replays::Numbers written) {
  static constexpr TensorNumber kNobody[] = {0};  // with which a recipe is dropped
  if (!follows() || overlap_.crossed || spoiling_.loses_this()) read = kNobody;
  const auto known = tried_.find(op.role);
  auto noted =
      replays_.note(recipe, op.name, read, written, known != tried_.end() && known->second);
  if (noted) noted->role = op.role;
  if (known == tried_.end()) op.untried = std::move(noted);
}

// ---------------------------------------------------------------- contents given up

struct Remaking::Delivery {
  Remaking& remaking;
  const std::vector<Replays::Run::Target> targets;
  bool trial = false;                                  // the bytes are compared, and go nowhere
  std::vector<std::span<const std::byte>> reads = {};  // at their addresses
  bool inputs_stay = true;
  std::size_t given = 0;                                   // as they were
  std::vector<std::pair<TensorNumber, ContentHash>> made;  // in a trial
};

// True: it is lost, or it is no more.
bool Remaking::discard(const LiveTensor& tensor, Engine::Ends ends) {
  const auto number = number_of(tensor);
  const auto may = [&] { return !settles_ && replays_.may_lose(number); };
  Guard guard(lock_);
  if (living(tensor) == nullptr || replays_.orphan(number)) return true;
  if (!may()) return false;
  std::optional<ContentHash> hash;
  if (hashes()) {
    Replays::Run reads;  // so that nobody frees it meanwhile
    reads.inputs = {number};
    replays_.begin(reads);
    guard.unlock();
    if (contents_ != nullptr || is_resident(tensor))
      hash = view_.hash(tensor.address, tensor.bytes);
    guard.lock();
    replays_.end(std::move(reads));
    run_over_.notify_all();
    if (living(tensor) == nullptr || replays_.orphan(number)) return true;
    if (!hash || !may() || !is_as_made(guard, number, *hash)) return false;
  }
  const auto bytes = engine_.discard(tensor.address, tensor.bytes, ends);
  if (bytes == 0) return false;
  replays_.lose(number, hash);
  hashed_.gave_up = true;
  counters_.discarded_bytes += bytes;
  return true;
}

bool Remaking::is_as_made(Guard& guard, TensorNumber number, const ContentHash& hash) {
  auto* maker = replays_.recipe_of(number);
  const auto made =
      std::ranges::find(maker->tried, number, [](const auto& each) { return each.first; });
  if (made == maker->tried.end() || made->second == hash) return true;
  const auto held = made->first;
  for (const auto lost : replays_.all_lost()) remake(guard, {lost});  // while chains may use it
  maker = replays_.recipe_of(held);
  if (maker == nullptr) return false;
  maker->trusted = tried_[maker->role] = false;
  ++trials_.refused[maker->op];
  return false;
}

// Where what it read is gone, and no chain makes it, another step decides.
void Remaking::try_out(Op& op) {
  Guard guard(lock_);
  const auto recipe = std::exchange(op.untried, nullptr);
  auto run = replays_.trial_of(*recipe);
  if (!run) return;
  Delivery delivery{*this, run->targets, true};
  const int code = this->run(guard, std::move(*run), delivery);
  if (!delivery.inputs_stay)
    refuse(Error(
        fmt::format("{} writes to what it only reads, by its own description: what it was given "
                    "has changed. Train without replays: --no-recompute",
                    op.name)));
  recipe->trusted = code == 0 && delivery.given == delivery.targets.size();
  recipe->tried = std::move(delivery.made);
  tried_[op.role] = recipe->trusted;
  ++trials_.ops;
  if (!recipe->trusted) ++trials_.refused[recipe->op];
}

// Orphans and recipes that nothing needs; `all`: and what is known. True: recipes went, without the
// lock meanwhile.
bool Remaking::let_go(Guard& guard, bool all) {
  for (const auto address : replays_.take_unneeded()) space_.release(address);
  if (all) replays_.forget(space_.births());
  const auto recipes = replays_.take_dropped();
  if (recipes.empty()) return false;
  guard.unlock();
  for (void* recipe : recipes) replayer_.load()->drop(recipe);
  guard.lock();
  return true;
}

// ---------------------------------------------------------------- contents made again

void Remaking::remake(Replays::Numbers numbers) {
  Guard guard(lock_);
  remake(guard, {numbers.begin(), numbers.end()});
}

void Remaking::reach(const LiveTensor& tensor, bool lasting) {
  const TensorNumber reached[] = {number_of(tensor)};
  Guard guard(lock_);
  for (;;) {
    auto wanted = replays_.threatened(reached);
    if (replays_.lost(reached[0])) wanted.push_back(reached[0]);
    remake(guard, wanted);
    if (wanted.empty() && !replays_.busy(reached[0])) break;
    if (wanted.empty()) run_over_.wait(guard);
  }
  replays_.reach(reached[0], lasting);
}

Remaking::Guard Remaking::all_there() {
  Guard guard(lock_);
  do {
    while (replays_.any_lost() || replays_.running() != 0) {
      const auto lost = replays_.all_lost();
      if (lost.empty())
        run_over_.wait(guard);
      else
        remake(guard, {lost.front()});
    }
  } while (let_go(guard, true));
  overlap_.crossed |= order_ == OpOrder::any && overlap_.open > 0;
  return guard;
}

Remaking::Guard Remaking::step_ends() {
  auto guard = all_there();
  hashed_.borders += std::exchange(hashed_.gave_up, false) ? 1 : 0;
  return guard;
}

void Remaking::remake(Guard& guard, const std::vector<TensorNumber>& wanted) {
  for (;;) {
    std::vector<TensorNumber> targets;
    bool waits = false;
    for (const auto number : wanted) {
      if (!replays_.lost(number) || std::ranges::find(targets, number) != targets.end()) continue;
      if (replays_.busy(number))
        waits = true;
      else
        targets.push_back(number);
    }
    if (!targets.empty())
      run_in_parts(guard, targets);
    else if (waits)
      run_over_.wait(guard);
    else
      return;
  }
}

// The lock is let go of between two: what another thread has made meanwhile is left out.
void Remaking::run_in_parts(Guard& guard, const std::vector<TensorNumber>& targets) {
  const auto parts = replays_.in_runs(targets);
  if (parts.size() == 1) return run(guard, parts.front());
  for (const auto& part : parts) remake(guard, part);
}

// As one chain if there is one: what two tensors come from is then made once.
void Remaking::run(Guard& guard, const std::vector<TensorNumber>& targets) {
  auto run = replays_.run_for(targets);
  if (!run && targets.size() > 1) {
    for (const auto number : targets) remake(guard, {number});
    return;
  }
  if (!run) {
    const auto* maker = replays_.maker_of(targets.front());
    refuse(Error(fmt::format(
        "a tensor of {} cannot be made again: it, or what it came from, was written too early. "
        "Train without replays: --no-recompute",
        maker != nullptr ? maker : "an op")));
  }
  Delivery delivery{*this, run->targets};
  const auto* op = run->targets.front().op;
  const int code = this->run(guard, std::move(*run), delivery);
  if (code != 0 || delivery.given != delivery.targets.size())
    refuse(Error(
        fmt::format("{} could not be run again, to make once more what it had made ({}). Train "
                    "without replays: --no-recompute",
                    op, code != 0 ? fmt::format("code {}", code) : "it made nothing")));
  for (const auto& target : delivery.targets) counters_.replayed_bytes += target.bytes;
}

int Remaking::run(Guard& guard, Replays::Run run, Delivery& delivery) {
  std::vector<void*> recipes;
  for (const auto& recipe : run.recipes) recipes.push_back(recipe->handle);
  if (!delivery.trial && spoiling_.drops_of_this()) recipes.erase(recipes.begin());
  replays_.begin(run);
  delivery.reads.clear();
  for (const auto number : run.inputs) delivery.reads.push_back(replays_.contents(number));
  DeviceLane::Op launch;  // what it uses is protected as an op's operands are
  lane_.begin(launch);
  lane_.use(launch);
  guard.unlock();
  const auto since = now_us();
  const int code = !delivery.trial && spoiling_.fails_this() ? -EIO : replay(recipes, delivery);
  guard.lock();
  lane_.end(launch);
  counters_.us += now_us() - since;
  if (!delivery.trial) counters_.replays += run.recipes.size();
  replays_.end(std::move(run));
  run_over_.notify_all();
  return code;
}

int Remaking::replay(const std::vector<void*>& recipes, Delivery& delivery) {
  const auto& replayer = *replayer_.load();
  const auto address = [](const auto& bytes) {
    return reinterpret_cast<std::uintptr_t>(bytes.data());
  };
  if (replayer.launches != nullptr) replayer.launches();
  if (contents_ != nullptr) {
    for (const auto& bytes : delivery.reads) engine_.touch(address(bytes), bytes.size());
    for (const auto& bytes : delivery.reads) engine_.await(address(bytes), bytes.size());
  }
  std::vector<ContentHash> before;
  if (delivery.trial)
    for (const auto& bytes : delivery.reads)
      before.push_back(view_.hash(address(bytes), bytes.size()));
  replaying = true, trying = delivery.trial;
  const int code = replayer.replay(recipes.data(), recipes.size(), give, &delivery);
  replaying = trying = false;
  for (std::size_t i = 0; i < before.size(); ++i)
    if (const auto& bytes = delivery.reads[i];
        view_.hash(address(bytes), bytes.size()) != before[i])
      delivery.inputs_stay = false;
  if (contents_ != nullptr)
    for (const auto& bytes : delivery.reads) contents_->used_here(address(bytes), bytes.size());
  return code;
}

// A difference: what it read, or what it made, was written by what Sentinel does not see; or it
// does not make the same twice.
void Remaking::give(void* context, std::uint64_t number, const void* bytes, std::size_t size) {
  auto& [remaking, targets, trial, reads, inputs_stay, given, made] =
      *static_cast<Delivery*>(context);
  const auto target = std::ranges::find(targets, number, &Replays::Run::Target::number);
  if (target == targets.end()) return;
  const auto at = reinterpret_cast<std::uintptr_t>(bytes);
  if (remaking.spoiling_.flips_this(trial)) remaking.view_.flip_a_bit(at, size);
  if (trial) {
    const auto hash = remaking.view_.hash(at, size);
    made.push_back({number, hash});
    given += size == target->bytes && hash == remaking.view_.hash(target->address, size) ? 1 : 0;
    return;
  }
  if (size != target->bytes || (target->hash && remaking.view_.hash(at, size) != *target->hash))
    refuse(Error(fmt::format(
        "what {} makes differs from what it had made: something that no op names has written to "
        "it or to what it reads, or it never makes the same twice. Train without replays: "
        "--no-recompute",
        target->op)));
  remaking.engine_.refill(target->address, target->bytes, bytes);
  ++given;
}

// ---------------------------------------------------------------- touches

void Remaking::touched(std::uintptr_t address) noexcept {
  const std::lock_guard guard(touches_->lock);
  auto& [lock, any, addresses, count] = *touches_;
  if (count < addresses.size()) addresses[count] = address;
  count = std::min(count + 1, addresses.size() + 1);
  any.notify_one();
}

void Remaking::serve_touches(Touches& touches) {
  std::vector<std::uintptr_t> touched;
  for (;;) {
    bool too_many = false;
    {
      std::unique_lock guard(touches.lock);
      touches.any.wait(guard, [&] { return touches.count != 0; });
      too_many = touches.count > touches.addresses.size();
      const auto* first = touches.addresses.data();
      touched.assign(first, first + std::min(touches.count, touches.addresses.size()));
      touches.count = 0;
    }
    Guard guard(lock_);
    if (too_many)
      for (const auto number : replays_.all_lost()) remake(guard, {number});
    for (const auto address : touched) remake(guard, replays_.lost_in(address, engine_.granule()));
  }
}

}  // namespace sentinel
