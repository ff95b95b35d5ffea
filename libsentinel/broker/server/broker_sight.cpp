// What the broker shows: samples of what jobs hold, metrics, and the list of jobs.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "base/exposition.h"
#include "base/failure.h"
#include "base/output.h"
#include "broker/server/broker.h"
#include "trace/json.h"

namespace sentinel {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMetricsMs = 1000;  // between two writings

const char* print(Ledger::State state) {
  constexpr const char* kNames[] = {"waiting", "settled", "ordered", "silent", "absent"};
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace

void Broker::sample() {
  seen_.held = 0;
  for (const auto& [id, member] : members_)
    seen_.held += member.page ? member.page->bytes().value_or(0) : 0;
  seen_.most = std::max(seen_.most, seen_.held);
  if (loop_.now_ms() - seen_.metrics_ms >= kMetricsMs) write_metrics();
}

// What cannot be written is said once, and tried no more.
void Broker::write_metrics() noexcept try {
  seen_.metrics_ms = loop_.now_ms();
  if (options_.metrics.empty()) return;
  write_file(options_.metrics, metrics(),
             fmt::format("cannot write metrics to {}", options_.metrics), Readers::everybody);
} catch (const std::exception& error) {
  if (options_.say) options_.say(in_words(error));
  options_.metrics.clear();
}

std::string Broker::metrics() const {
  std::map<std::string_view, std::size_t> states;
  for (const auto& [id, job] : ledger_.jobs()) ++states[print(job.state)];
  Exposition page(label_of("socket", options_.path));
  page.family("sentinel_broker_total_bytes", "gauge", "Fast memory for all jobs together.");
  page.sample(ledger_.total());
  page.family("sentinel_broker_counted_bytes", "gauge", "What jobs may hold at most.");
  page.sample(ledger_.counted());
  page.family("sentinel_broker_leased_bytes", "gauge", "What of that is lent for jobs' peaks.");
  page.sample(ledger_.leased());
  page.family("sentinel_broker_leases_total", "counter", "Leases that were given.");
  page.sample(seen_.leases);
  page.family("sentinel_broker_held_bytes", "gauge", "What jobs hold now.");
  page.sample(seen_.held);
  page.family("sentinel_broker_most_held_bytes", "gauge", "The most that jobs have held.");
  page.sample(seen_.most);
  page.family("sentinel_broker_jobs", "gauge", "Jobs by what they do.");
  for (const auto state : {Ledger::State::waiting, Ledger::State::settled, Ledger::State::ordered,
                           Ledger::State::silent, Ledger::State::absent})
    page.sample(states[print(state)], label_of("state", print(state)));
  page.family("sentinel_broker_job_granted_bytes", "gauge", "What a job may hold.");
  for (const auto& [id, member] : members_)
    page.sample(ledger_.jobs().at(id).ordered,
                fmt::format("{},{}", label_of("pid", std::to_string(member.process)),
                            label_of("job", member.name)));
  return page.take();
}

std::string Broker::listing() const {
  Json json{{"total_bytes", ledger_.total()},
            {"counted_bytes", ledger_.counted()},
            {"leased_bytes", ledger_.leased()},
            {"leases", seen_.leases},
            {"held_bytes", seen_.held},
            {"most_held_bytes", seen_.most},
            {"waits_for_absent_jobs", ledger_.frozen()},
            {"jobs", Json::array()}};
  for (const auto& [id, member] : members_) {
    const auto& job = ledger_.jobs().at(id);
    Json row{{"process", member.process},      {"name", member.name},
             {"state", print(job.state)},      {"granted_bytes", job.ordered},
             {"counted_bytes", job.counted()}, {"leased_bytes", job.leased},
             {"planned_bytes", job.most},      {"least_bytes", job.need.least},
             {"usual_bytes", job.need.usual},  {"most_bytes", job.need.most},
             {"priority", job.need.priority}};
    if (member.page)
      if (const auto held = member.page->bytes()) row["held_bytes"] = *held;
    if (member.told_drive != 0) row["drive_part"] = member.told_drive / 1e3;
    if (!job.admitted()) row["waits_for"] = ledger_.why_waiting(id);
    for (const auto& point : job.need.curve)
      row["curve"].push_back(
          {{"bytes", point.bytes}, {"slowdown", point.slowdown}, {"drive", point.drive}});
    json["jobs"].push_back(std::move(row));
  }
  return json_text(json, 1) + "\n";
}

void Broker::send_listing(Connection& to) {
  sample();
  to.send({.kind = MessageKind::listing}, sealed_file(listing()));
}

}  // namespace sentinel
