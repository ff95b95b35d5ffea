// Adds steps up, and prints the sums in Prometheus's text format.
#include "runtime/limit/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/exposition.h"
#include "base/output.h"
#include "engine/host/ranks.h"
#include "sentinel/error.h"

namespace sentinel {
namespace {

constexpr double kEveryUs = 1e6;

}  // namespace

Metrics::Metrics(std::string path, const Voice& voice) : path_(std::move(path)), voice_(voice) {}

void Metrics::step_ended(const std::string& framework, const Summary& summary,
                         std::uint64_t fast_bytes) {
  if (path_.empty()) return;
  const auto& row = summary.steps.back();
  const bool drives = !summary.tiers || !summary.tiers->below.empty();
  ++totals_.steps;
  totals_.in += row.promoted_bytes;
  totals_.out += row.demoted_bytes;
  totals_.faults += row.demand_faults;
  totals_.replays += row.replays;
  totals_.stall_s += row.stall_ms / 1e3;
  if (drives) totals_.ssd_written += summary.tiers ? row.writing.bytes : row.demoted_bytes;
  text_ = text(framework, summary, fast_bytes);
  if (now_us() - written_us_ >= kEveryUs) write();
}

void Metrics::end() {
  if (!path_.empty() && !text_.empty()) write();
}

std::string Metrics::text(const std::string& framework, const Summary& summary,
                          std::uint64_t fast_bytes) const {
  const auto moved = [&](const char* direction) {
    return fmt::format("{},{}", label_of("direction", direction),
                       label_of("tier", summary.tiers ? summary.tiers->slow : "ssd"));
  };
  Exposition page(
      fmt::format("pid=\"{}\",rank=\"{}\"", getpid(), rank_of_process().rank.value_or(0)));
  page.family("sentinel_info", "gauge", "What trains, and the policy that plans; always 1.");
  page.sample(1, fmt::format("{},{}", label_of("framework", framework),
                             label_of("policy", summary.policy)));
  page.family("sentinel_steps_total", "counter", "Training steps that have ended.");
  page.sample(totals_.steps);
  page.family("sentinel_step_seconds", "gauge", "Duration of the last step.");
  page.sample(summary.steps.back().ms / 1e3);
  page.family("sentinel_stall_seconds_total", "counter", "Time in which steps waited for memory.");
  page.sample(totals_.stall_s);
  page.family("sentinel_moved_bytes_total", "counter",
              "Bytes that went to the slow tier (out) and came back (in).");
  page.sample(totals_.in, moved("in"));
  page.sample(totals_.out, moved("out"));
  page.family("sentinel_demand_faults_total", "counter",
              "Touches of what was not in fast memory, and no plan had foreseen.");
  page.sample(totals_.faults);
  page.family("sentinel_replays_total", "counter", "Ops that were run again.");
  page.sample(totals_.replays);
  page.family("sentinel_ssd_written_bytes_total", "counter", "Bytes that were written to drives.");
  page.sample(totals_.ssd_written);
  page.family("sentinel_fast_bytes", "gauge", "Fast memory that tensors have now.");
  page.sample(fast_bytes);
  page.family("sentinel_fast_limit_bytes", "gauge", "Budget of fast memory; 0: none yet.");
  page.sample(summary.fast_limit_bytes);
  return page.take();
}

void Metrics::write() {
  written_us_ = now_us();
  try {
    write_file(path_, std::exchange(text_, {}), fmt::format("cannot write metrics to {}", path_),
               Readers::everybody);
  } catch (const Error& error) {
    voice_.say(error.what());
    path_.clear();
  }
}

}  // namespace sentinel
