// Runs a step's accesses through a direct-mapped cache, page by page.
#include "sim/cache_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sim/addresses.h"

namespace sentinel::sim {

// A line that contains `at` becomes two.
void DirectMappedCache::cut(std::uint64_t at) {
  auto line = lines_.upper_bound(at);
  if (line == lines_.begin()) return;
  --line;
  if (line->first == at || line->second.end <= at) return;
  lines_.emplace(at, line->second);
  line->second.end = at;
}

// The part of an access that lies in [begin, end) of the cache.
void DirectMappedCache::pass(std::uint64_t begin, std::uint64_t end, std::uint64_t tag, bool write,
                             Misses& misses) {
  cut(begin);
  cut(end);
  const auto first = lines_.lower_bound(begin), last = lines_.lower_bound(end);
  std::uint64_t hit = 0;
  for (auto line = first; line != last;) {
    const std::uint64_t bytes = line->second.end - line->first;
    if (line->second.tag == tag) {
      hit += bytes;
      line->second.dirty |= write;
      ++line;
    } else {
      misses.written_back += line->second.dirty ? bytes : 0;
      line = lines_.erase(line);
    }
  }
  misses.filled += end - begin - hit;
  // What is between the lines that hit.
  std::uint64_t at = begin;
  for (auto line = lines_.lower_bound(begin); at < end;) {
    const std::uint64_t until = line == lines_.end() ? end : std::min(end, line->first);
    if (at < until) lines_.emplace_hint(line, at, Line{until, tag, write});
    if (until == end) break;
    at = line->second.end;
    ++line;
  }
  join(begin, end);
}

// Neighbours of the same contents become one, so that the cache stays as coarse as its use.
void DirectMappedCache::join(std::uint64_t begin, std::uint64_t end) {
  auto line = lines_.lower_bound(begin);
  if (line != lines_.begin()) --line;
  while (line != lines_.end() && line->first <= end) {
    const auto next = std::next(line);
    if (next == lines_.end()) return;
    const Line &a = line->second, &b = next->second;
    if (a.end == next->first && a.tag == b.tag && a.dirty == b.dirty) {
      line->second.end = b.end;
      lines_.erase(next);
    } else {
      line = next;
    }
  }
}

DirectMappedCache::Misses DirectMappedCache::access(std::uint64_t address, std::uint64_t bytes,
                                                    bool write) {
  Misses misses;
  while (bytes > 0) {
    const std::uint64_t begin = address % bytes_;
    const std::uint64_t n = std::min(bytes, bytes_ - begin);
    pass(begin, begin + n, address / bytes_, write, misses);
    address += n;
    bytes -= n;
    if (n < bytes_ || bytes < bytes_) continue;
    // A whole cacheful after another of the same access: nothing hits, and what the one before
    // wrote goes. All but the last are alike.
    const std::uint64_t alike = (bytes / bytes_ - 1) * bytes_;
    misses.filled += alike;
    misses.written_back += write ? alike : 0;
    address += alike;
    bytes -= alike;
  }
  return misses;
}

namespace {

class CacheRun {
 public:
  CacheRun(const Profile& profile, const Machine& machine, const SimOptions& options)
      : profile_(profile),
        fast_(machine.tiers[0]),
        slow_(machine.tiers[1]),
        options_(options),
        cache_(options.fast_bytes),
        addresses_(profile),
        openings_(profile.ops.size()) {
    if (!profile.accesses.empty()) index_openings();
  }

  SimResult run() {
    for (std::uint32_t i = 0; i < std::max(options_.steps, 1u); ++i) step();
    result_.step_times_us = times_;
    result_.peak_fast_bytes = std::min(options_.fast_bytes, addresses_.reserved_bytes());
    if (written_back_ > 0)
      result_.traffic.push_back(
          {fast_.name, slow_.name, static_cast<std::uint64_t>(written_back_)});
    if (filled_ > 0)
      result_.traffic.push_back({slow_.name, fast_.name, static_cast<std::uint64_t>(filled_)});
    return std::move(result_);
  }

 private:
  void index_openings() {
    std::map<std::uint32_t, std::uint32_t> storage_of;
    for (std::uint32_t s = 0; s < addresses_.size(); ++s)
      storage_of[addresses_.range(s).tensor.value] = s;
    for (const AccessCount& a : profile_.accesses)
      if (const auto s = storage_of.find(a.tensor.value); s != storage_of.end())
        openings_[a.op.index()][s->second] += static_cast<double>(a.reads + a.writes);
  }

  void step() {
    result_ = SimResult{.ideal_us = ideal_us(profile_)};
    filled_ = written_back_ = 0;
    for (std::size_t k = 0; k < profile_.ops.size(); ++k) {
      const OpId op(k);
      for (std::uint32_t s : addresses_.births(op)) addresses_.allocate(s);
      double late = 0;
      for (const auto& operand : addresses_.operands(op)) late += use(op, operand);
      for (std::uint32_t s : addresses_.deaths(op)) addresses_.free(s);
      result_.op_stall_us.push_back(late);
      result_.stall_us += late;
    }
    result_.step_us = result_.ideal_us + result_.stall_us;
    times_.push_back(result_.step_us);
  }

  // Time of one pass beyond that of a pass in fast memory.
  double use(OpId op, const Addresses::Operand& operand) {
    const auto& range = addresses_.range(operand.storage);
    const auto page = static_cast<double>(profile_.meta.page_bytes);
    const double pages = std::max(1.0, static_cast<double>(range.bytes) / page);
    const bool counted = !profile_.accesses.empty();
    double opened = pages;
    if (counted) {
      const auto found = openings_[op.index()].find(operand.storage);
      opened = found == openings_[op.index()].end() ? 0 : std::min(pages, found->second);
    }
    if (opened == 0) return 0;
    const auto misses = cache_.access(range.begin, range.bytes, operand.written);
    const double share = opened / pages;
    const double filled = static_cast<double>(misses.filled) * share,
                 back = static_cast<double>(misses.written_back) * share;
    filled_ += filled;
    written_back_ += back;
    const auto us = [](double bytes, double bw) { return bw > 0 ? bytes * 1e6 / bw : 0; };
    const double latency = counted ? filled / page * (slow_.latency_us - fast_.latency_us) : 0;
    return std::max(0.0, latency + us(filled, slow_.read_bw) - us(filled, fast_.read_bw)) +
           us(back, slow_.write_bw);
  }

  const Profile& profile_;
  const TierSpec &fast_, &slow_;
  const SimOptions options_;
  DirectMappedCache cache_;
  Addresses addresses_;
  std::vector<std::map<std::uint32_t, double>> openings_;  // per op and storage
  double filled_ = 0, written_back_ = 0;
  std::vector<double> times_;
  SimResult result_;
};

}  // namespace

SimResult run_cached(const Profile& profile, const Machine& machine, const SimOptions& options) {
  if (!machine.tiers[1].byte_addressable)
    throw Error(fmt::format(
        "memory-mode needs a slow tier that processors address; \"{}\" of machine {} is none",
        machine.tiers[1].name, machine.name));
  if (options.fast_bytes == 0) throw Error("memory-mode needs fast memory to cache in");
  return CacheRun(profile, machine, options).run();
}

}  // namespace sentinel::sim
