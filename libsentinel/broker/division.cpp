// Divides by marginal gain where all curves are known, else in proportion to what is wanted.
#include "broker/division.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sentinel {
namespace {

using Shares = std::vector<std::uint64_t>;

std::uint64_t sum(const Shares& shares) {
  return std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
}

// The lower hull of a curve, which falls at an ever smaller rate: a piece of memory is worth what
// the whole way to the next corner brings.
class Hull {
 public:
  static constexpr double kNoLoss = 1.02;

  explicit Hull(const Need& need) : weight_(need.priority) {
    for (const auto& point : need.curve) {
      if (!corners_.empty() &&
          (point.bytes <= corners_.back().bytes || point.slowdown >= corners_.back().slowdown))
        continue;
      while (corners_.size() > 1 &&
             slope(corners_[corners_.size() - 2], corners_.back()) <= slope(corners_.back(), point))
        corners_.pop_back();
      corners_.push_back(point);
    }
  }

  // Per byte, at so many bytes; 0: nothing is gained any more that a simulator could tell.
  double gain(std::uint64_t bytes) const {
    for (std::size_t i = 1; i < corners_.size(); ++i) {
      if (bytes >= corners_[i].bytes) continue;
      const auto each = slope(corners_[i - 1], corners_[i]);
      const auto here =
          corners_[i].slowdown + each * static_cast<double>(corners_[i].bytes - bytes);
      return here < kNoLoss ? 0 : weight_ * each;
    }
    return 0;
  }

 private:
  static double slope(const CurvePoint& from, const CurvePoint& to) {
    return (from.slowdown - to.slowdown) / static_cast<double>(to.bytes - from.bytes);
  }
  double weight_;
  std::vector<CurvePoint> corners_;
};

// A piece at a time to the one that gains most by it, among equals to the one that has least.
void divide_by_gain(std::uint64_t rest, std::span<const Need> needs, std::uint64_t grain,
                    Shares& shares) {
  std::vector<Hull> hulls(needs.begin(), needs.end());
  while (rest != 0) {
    std::size_t best = needs.size();
    double most = 0;
    for (std::size_t i = 0; i < needs.size(); ++i) {
      if (shares[i] >= needs[i].most) continue;
      const double gain = hulls[i].gain(shares[i]);
      const bool better =
          best == needs.size() || gain > most || (gain == most && shares[i] < shares[best]);
      if (better) best = i, most = gain;
    }
    if (best == needs.size()) return;
    const auto piece = std::min({grain, rest, needs[best].most - shares[best]});
    shares[best] += piece;
    rest -= piece;
  }
}

// Each gets of the rest by its weight and what it lacks; nobody more than that. What one leaves is
// for the others.
void divide_by_want(std::uint64_t rest, std::span<const Need> needs, Shares& shares) {
  for (bool again = true; again && rest != 0;) {
    again = false;
    double wanted = 0;
    std::vector<double> wants(needs.size());
    for (std::size_t i = 0; i < needs.size(); ++i) {
      wants[i] = static_cast<double>(needs[i].most - shares[i]) * needs[i].priority;
      wanted += wants[i];
    }
    if (wanted <= 0) return;
    const auto before = rest;
    for (std::size_t i = 0; i < needs.size(); ++i) {
      const auto part = static_cast<std::uint64_t>(static_cast<double>(before) * wants[i] / wanted);
      const auto given = std::min({part, rest, needs[i].most - shares[i]});
      shares[i] += given;
      rest -= given;
      again |= given != 0;
    }
  }
}

}  // namespace

std::vector<std::uint64_t> divide(std::uint64_t total, std::span<const Need> needs,
                                  std::uint64_t grain) {
  Shares shares;
  for (const auto& need : needs) shares.push_back(need.least);
  const auto rest = total - std::min(total, sum(shares));
  const bool known =
      std::ranges::none_of(needs, [](const Need& need) { return need.curve.empty(); });
  if (known)
    divide_by_gain(rest, needs, grain, shares);
  else
    divide_by_want(rest, needs, shares);
  for (std::size_t i = 0; i < needs.size(); ++i)  // grain by grain, as memory is held
    if (shares[i] != needs[i].most) shares[i] = std::max(needs[i].least, shares[i] / grain * grain);
  return shares;
}

std::uint64_t lease_pool(std::span<const Share> shares) {
  std::uint64_t largest = 0, all = 0;
  for (const auto& share : shares) {
    largest = std::max(largest, share.beyond());
    all += share.beyond();
  }
  return std::max(largest, all / 2);
}

namespace {

// Bases of so many sixteenths of what is usual.
std::vector<Share> with_bases(const Shares& bytes, std::span<const Need> needs, std::uint64_t grain,
                              std::uint64_t sixteenths = 16) {
  std::vector<Share> shares;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    const auto part = needs[i].usual / 16 * sixteenths + needs[i].usual % 16;
    const auto usual = needs[i].usual == 0 ? needs[i].most : (part + grain - 1) / grain * grain;
    shares.push_back({.base = std::clamp(usual, std::min(needs[i].least, bytes[i]), bytes[i]),
                      .most = bytes[i]});
  }
  return shares;
}

std::uint64_t cost(std::span<const Share> shares) {
  auto bytes = lease_pool(shares);
  for (const auto& share : shares) bytes += share.base;
  return bytes;
}

// Of a curve that is not empty. Between two points on the line between them; beyond all as at the
// nearest.
double within(std::uint64_t bytes, const std::vector<CurvePoint>& curve,
              double CurvePoint::*figure) {
  const auto above = std::ranges::lower_bound(curve, bytes, {}, &CurvePoint::bytes);
  if (above == curve.begin()) return (*above).*figure;
  const auto below = std::prev(above);
  if (above == curve.end()) return (*below).*figure;
  const auto part =
      static_cast<double>(bytes - below->bytes) / static_cast<double>(above->bytes - below->bytes);
  return (*below).*figure + ((*above).*figure - (*below).*figure) * part;
}

// What changes hands is zeroed by the kernel, which takes about a tenth of the time. A job that
// loses less by moves goes on with its share alone.
bool worth_lending(std::span<const Share> shares, std::span<const Need> needs) {
  constexpr double kLending = 1.1;
  if (std::ranges::count_if(needs, [](const Need& need) { return need.usual != 0; }) < 2)
    return false;  // one that lends to itself alone
  for (std::size_t i = 0; i < needs.size(); ++i)
    if (needs[i].usual != 0 &&
        (needs[i].curve.empty() ||
         within(shares[i].most, needs[i].curve, &CurvePoint::slowdown) >= kLending))
      return true;
  return false;
}

// Each job plans for all that it could use, or nearly: next to nothing moves then. Up to a quarter
// of what it usually holds is lent as well. Empty: that does not fit.
std::vector<Share> without_moves(std::uint64_t total, std::span<const Need> needs,
                                 std::uint64_t grain) {
  for (const std::uint64_t sixteenths : {16, 15, 14, 13, 12})
    for (const std::uint64_t missing : {0, 1, 2}) {
      Shares bytes;
      for (const auto& need : needs) {
        const auto nearly = (need.most - need.most / 64 * missing) / grain * grain;
        bytes.push_back(missing == 0 ? need.most : std::max(need.least, nearly));
      }
      auto shares = with_bases(bytes, needs, grain, sixteenths);
      if (cost(shares) <= total) return shares;
    }
  return {};
}

}  // namespace

std::vector<Share> share(std::uint64_t total, std::span<const Need> needs, std::uint64_t grain) {
  std::vector<Share> best;
  for (const auto bytes : divide(total, needs, grain)) best.push_back({bytes, bytes});
  std::uint64_t wanted = 0;
  for (const auto& need : needs) wanted += need.most;
  if (wanted <= total || !worth_lending(best, needs)) return best;
  if (auto shares = without_moves(total, needs, grain); !shares.empty()) return shares;
  // As if there were so much: more of it costs more.
  for (auto works = total, fails = wanted + grain; fails - works > grain;) {
    const auto tried = works + (fails - works) / 2;
    auto shares = with_bases(divide(tried, needs, grain), needs, grain);
    if (cost(shares) <= total)
      works = tried, best = std::move(shares);
    else
      fails = tried;
  }
  return best;
}

std::vector<double> drive_parts(std::span<const Need> needs, std::span<const std::uint64_t> bytes) {
  constexpr double kUses = 0.01;  // less is nothing to the others
  std::vector<double> uses;
  for (std::size_t i = 0; i < needs.size(); ++i)
    uses.push_back(needs[i].curve.empty() ? 0
                                          : within(bytes[i], needs[i].curve, &CurvePoint::drive));
  const double all = std::accumulate(uses.begin(), uses.end(), 0.0);
  std::vector<double> parts;
  for (const double use : uses) {
    const auto others =
        std::ranges::count_if(uses, [](double one) { return one > kUses; }) - (use > kUses ? 1 : 0);
    parts.push_back(std::clamp(1 - (all - use), 1 / static_cast<double>(others + 1), 1.0));
  }
  return parts;
}

}  // namespace sentinel
