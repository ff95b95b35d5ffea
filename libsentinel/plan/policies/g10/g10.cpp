// G10: Zhang, Zhou, Xue, Liu, Huang, "G10: Enabling An Efficient Unified GPU Memory and Storage
// Architecture with Smart Tensor Migrations", MICRO 2023.
//
// Modelled: inactive periods of all tensors, those of global ones across steps too (section 4.2);
// Algorithm 1: the period of the best benefit for its cost goes first, benefit being bytes times
// the time they relieve of excess, cost the time of its two transfers; to the SSD, or to host
// memory where the SSD is busy or too slow for the period; a migration's time is found in what
// earlier ones left free on the links (4.3); prefetches moved from their latest safe time to the
// earliest time at which there is room (4.4); tensors below a page compacted (4.5); what is waited
// for goes before other migrations (4.6: the simulator expedites it). `g10-gds` has the SSD alone,
// `g10-host` host memory too; both lack the unified memory: no compaction, and no arbiter, so that
// the link is divided between SSD and host beforehand (as in the published artifact).
// Where a granule is a frame of many pages, tensors share them as in `sentinel`, whatever the
// variant, and what Algorithm 1 chooses is the beginning of a schedule (plan/gaps/scheduled.h),
// which also keeps frames for transfers and streams an op that cannot fit. Left out: migration page
// by page (a tensor moves whole), the SSD's garbage collection, the cost of address translation.
// Where Algorithm 1 ends above capacity, G10 leaves the rest to page faults and LRU; a plan has to
// be complete, so what is used last leaves, which is kinder.
#include <algorithm>
#include <array>
#include <queue>
#include <set>
#include <span>

#include "base/clock.h"
#include "plan/gaps/decisions.h"
#include "plan/gaps/pressure.h"
#include "plan/gaps/relief.h"
#include "plan/gaps/scheduled.h"
#include "plan/layout/compaction.h"
#include "plan/layout/layout.h"
#include "plan/policies/g10/bandwidth_calendar.h"
#include "plan/schedule/frame_pool.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"

namespace sentinel::plan {
namespace {

constexpr std::string_view kEagerPrefetch = "eager-prefetch";
constexpr std::string_view kHostTier = "host-tier";
constexpr std::array kFeatures{kEagerPrefetch, kHostTier};

struct G10Variant {
  std::string_view name;
  bool host = true, unified = true;
};

// A candidate this near to the best counts as the best. Benefits shrink together, and to find the
// very best of nearly equal ones takes time quadratic in their number; so the more often a
// candidate has been looked at in vain, the less near it has to be: twice as much each time.
constexpr double kSlack = 0.001, kMostSlack = 0.1;
constexpr std::size_t kBetweenClocks = 1024;  // candidates between two looks at the clock

// What is compacted never moves. Below a page that is little; below a frame it would be nearly all
// of a small net.
Layout layout(const G10Variant& variant, const Profile& profile, const Machine& machine,
              const PlanOptions& options) {
  if (granules_are_shared(machine))
    return lay_out(profile, storages(profile), machine.granule_bytes, options.fast_bytes);
  return variant.unified ? compact(profile, storages(profile), machine.granule_bytes) : Layout{};
}

class G10Planner {
 public:
  G10Planner(const G10Variant& variant, const Profile& profile, const Machine& machine,
             const PlanOptions& options)
      : variant_(variant),
        profile_(profile),
        machine_(machine),
        options_(options),
        basis_(profile, machine, layout(variant, profile, machine, options)),
        storages_(basis_.storages),
        times_(profile),
        pressure_(basis_.demand.all, limit(), times_),
        calendar_(times_, machine, variant.unified),
        ssd_(static_cast<std::uint32_t>(machine.tiers.size()) - 1),
        host_(variant.host && uses(options, kHostTier) && ssd_ > 1 ? ssd_ - 1 : 0),
        host_held_(std::vector<std::uint64_t>(profile.ops.size(), 0)) {}

  Plan plan();

 private:
  struct Candidate {
    double ratio;
    std::uint32_t period;
    bool operator<(const Candidate& o) const {  // the best is the greatest, the first among equals
      return ratio != o.ratio ? ratio < o.ratio : period > o.period;
    }
  };

  std::uint64_t limit() const;
  void find_periods();
  double ratio(const Period&) const;
  void schedule_evictions();
  bool evict(Period&);
  bool migrate(Period&, std::uint32_t tier);
  bool host_has_room(const Period&) const;
  void put(Period&, std::uint32_t tier);
  void prefetch_eagerly();
  Plan scheduled();
  Plan decided();
  std::vector<Decision> decisions() const;
  void give_reasons(Plan&) const;

  G10Variant variant_;
  const Profile& profile_;
  const Machine& machine_;
  const PlanOptions& options_;
  Basis basis_;
  const std::vector<Storage>& storages_;
  StepTimes times_;
  Pressure pressure_;
  BandwidthCalendar calendar_;
  std::uint32_t ssd_, host_;  // tiers; host_ 0: not used
  Level host_held_;
  std::vector<Period> periods_;
};

std::uint64_t G10Planner::limit() const {
  if (!granules_are_shared(machine_)) return options_.fast_bytes;
  const BudgetInput budget{profile_, machine_, options_, storages_, basis_.movable, basis_.demand};
  return options_.fast_bytes - frame_pool(budget);
}

// Section 4.2. What lies compacted with others does not migrate by itself.
void G10Planner::find_periods() {
  for (const IdleGap& gap : idle_gaps(profile_, storages_, machine_)) {
    const Storage& s = storages_[gap.storage];
    const std::uint64_t bytes = freed_bytes(basis_.footprint, s);
    if (bytes == 0 || !basis_.movable[gap.storage]) continue;
    periods_.push_back({.storage = gap.storage,
                        .use = gap.use,
                        .next = gap.next,
                        .bytes = bytes,
                        .out = gap.use + 1,
                        .in = gap.next});
  }
}

// Benefit over cost (4.3), by what the migration takes alone: to the SSD where the period is long
// enough for that, to the host where it is long enough for that. 0: nothing to gain.
double G10Planner::ratio(const Period& p) const {
  for (const std::uint32_t tier : {ssd_, host_}) {
    if (tier == 0) break;
    const double write_us = calendar_.write_us(tier, p.bytes),
                 read_us = calendar_.read_us(tier, p.bytes);
    const std::uint32_t out = times_.first_from(times_.end_us(p.use) + write_us),
                        in = times_.last_until(times_.start_us(p.next) - read_us);
    if (out >= in || times_.start_us(p.next) < read_us) continue;
    return static_cast<double>(p.bytes) * pressure_.critical_us(out, in) / (write_us + read_us);
  }
  return 0;
}

// Algorithm 1. Benefits only shrink while pressure falls, so a candidate that still leads after its
// benefit was computed anew is the best of all: no sorting at every turn.
void G10Planner::schedule_evictions() {
  const auto start = Clock::now();
  std::vector<double> slacks(periods_.size(), kSlack);
  std::priority_queue<Candidate> queue;
  for (std::uint32_t i = 0; i < periods_.size(); ++i)
    if (const double r = ratio(periods_[i]); r > 0) queue.push({r, i});
  for (std::size_t turn = 1; !queue.empty() && !pressure_.fits(); ++turn) {
    const Candidate best = queue.top();
    queue.pop();
    const Candidate now{ratio(periods_[best.period]), best.period};
    if (now.ratio <= 0) continue;
    double& slack = slacks[best.period];
    if (!queue.empty() && now.ratio < (1 - slack) * queue.top().ratio) {
      slack = std::min(2 * slack, kMostSlack);
      queue.push(now);
    } else {
      evict(periods_[best.period]);
    }
    if (turn % kBetweenClocks == 0 && seconds_since(start) > options_.time_limit_s) break;
  }
}

// Lines 8 to 16. Host memory also takes what cannot go to the SSD and back in time (7.4).
bool G10Planner::evict(Period& p) {
  const bool host = host_ != 0 && host_has_room(p);
  if (calendar_.write_blocked(ssd_, p.bytes, p.use + 1) && host && migrate(p, host_)) return true;
  return migrate(p, ssd_) || (host && migrate(p, host_));
}

bool G10Planner::host_has_room(const Period& p) const {
  const std::uint64_t capacity = machine_.tiers[host_].capacity;
  return capacity == 0 || host_held_.most(p.use + 1, p.next) + static_cast<std::int64_t>(p.bytes) <=
                              static_cast<std::int64_t>(capacity);
}

bool G10Planner::migrate(Period& p, std::uint32_t tier) {
  const auto out = calendar_.write_end(tier, p.bytes, p.use + 1, p.next);
  if (!out) return false;
  const auto in = calendar_.read_start(tier, p.bytes, *out, p.next);
  if (!in || *in <= *out) return false;
  calendar_.book_write(tier, p.bytes, p.use + 1, *out);
  calendar_.book_read(tier, p.bytes, *in, p.next);
  p.out = *out;
  p.in = *in;
  p.evicted = true;
  pressure_.release(p.out, p.in, p.bytes);
  put(p, tier);
  return true;
}

void G10Planner::put(Period& p, std::uint32_t tier) {
  p.tier = tier;
  if (tier == host_) host_held_.add(p.use + 1, p.next, static_cast<std::int64_t>(p.bytes));
}

// Section 4.4: in the order of the latest safe times.
void G10Planner::prefetch_eagerly() {
  std::vector<Period*> order;
  for (Period& p : periods_)
    if (p.evicted) order.push_back(&p);
  std::ranges::stable_sort(order, {}, &Period::in);
  for (Period* p : order) {
    const std::uint32_t earliest = pressure_.room_since(p->out, p->in, p->bytes);
    pressure_.hold(earliest, p->in, p->bytes);
    p->in = earliest;
    if (p->in == p->out) p->evicted = false;  // it would come back as soon as it has left
  }
}

std::vector<Decision> G10Planner::decisions() const {
  std::vector<Decision> all;
  for (const Period& p : periods_)
    if (p.evicted)
      all.push_back({.storage = p.storage,
                     .use = p.use,
                     .next = p.next,
                     .remedy = Remedy::swap,
                     .tier = p.tier,
                     .fetch = p.in});
  return all;
}

// What G10 itself would leave to page faults is marked.
void G10Planner::give_reasons(Plan& plan) const {
  const std::uint32_t ops = times_.ops();
  std::set<std::pair<TensorId, OpId>> chosen;  // by tensor and op of the trigger or the deadline
  for (const Period& p : periods_)
    if (p.evicted && !p.forced) {
      const Storage& s = storages_[p.storage];
      chosen.emplace(s.at(p.use, ops), OpId(p.use % ops));
      chosen.emplace(s.at(p.next, ops), OpId(p.next % ops));
    }
  for (Move& m : plan.moves)
    if (!chosen.contains({m.tensor, m.direction == Direction::promote ? m.deadline : m.trigger}))
      m.reason += "; left over by Algorithm 1, a page fault in G10";
}

// What is left over, and when there is room for a prefetch, depends on granules that several
// tensors share.
Plan G10Planner::scheduled() {
  return scheduled_plan(variant_.name, basis_, options_, decisions(),
                        {.early = uses(options_, kEagerPrefetch), .tier = host_ == 0 ? ssd_ : 0});
}

Plan G10Planner::decided() {
  relieve(pressure_, periods_, times_.ops(), [this](Period& p) {
    put(p, host_ != 0 && host_has_room(p) ? host_ : ssd_);  // unified memory fills the host first
  });
  if (uses(options_, kEagerPrefetch)) prefetch_eagerly();
  return decided_plan(variant_.name, basis_, options_, decisions()).plan;
}

Plan G10Planner::plan() {
  if (!pressure_.fits()) {
    find_periods();
    schedule_evictions();
  }
  Plan plan = granules_are_shared(machine_) ? scheduled() : decided();
  give_reasons(plan);
  return plan;
}

class G10Policy final : public PlannedPolicy {
 public:
  explicit G10Policy(const G10Variant& variant) : variant_(variant) {}

  std::string_view name() const override { return variant_.name; }
  std::span<const std::string_view> features() const override {
    return std::span(kFeatures).first(variant_.host ? 2 : 1);
  }

  Plan plan(const Profile& profile, const Machine& machine, const PlanOptions& options) override {
    check_features(*this, options);
    if (profile.ops.empty())
      throw Error("the profile holds no operation, so there is nothing to plan");
    return G10Planner(variant_, profile, machine, options).plan();
  }

 private:
  G10Variant variant_;
};

}  // namespace

std::unique_ptr<Policy> make_g10() { return std::make_unique<G10Policy>(G10Variant{"g10"}); }
std::unique_ptr<Policy> make_g10_gds() {
  return std::make_unique<G10Policy>(G10Variant{"g10-gds", false, false});
}
std::unique_ptr<Policy> make_g10_host() {
  return std::make_unique<G10Policy>(G10Variant{"g10-host", true, false});
}

}  // namespace sentinel::plan
