#include "execute/summary.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "sentinel/error.h"

namespace sentinel {

void Summary::step_ended(const char* phase, const EngineCounters& now) {
  const auto end = std::chrono::steady_clock::now();
  const std::chrono::duration<double, std::milli> ms = end - std::exchange(began_, end);
  const auto before = std::exchange(before_, now);
  steps.push_back({.step = static_cast<std::uint32_t>(steps.size()),
                   .ms = ms.count(),
                   .phase = phase,
                   .demand_faults = now.demand_faults - before.demand_faults,
                   .promoted_bytes = now.promoted_bytes - before.promoted_bytes,
                   .demoted_bytes = now.demoted_bytes - before.demoted_bytes,
                   .stall_ms = (now.stall_us - before.stall_us) / 1e3});
}

double Summary::steady_ms() const {
  std::vector<double> ms;
  for (const auto& row : steps)
    if (row.phase == "steady") ms.push_back(row.ms);
  if (ms.empty()) return 0;
  std::nth_element(ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2), ms.end());
  return ms[ms.size() / 2];
}

void Summary::planned(std::uint64_t peak_live_bytes, const Plan& plan) {
  peak_unlimited_bytes = std::max(peak_unlimited_bytes, peak_live_bytes);
  streamed_ops = std::max<std::uint64_t>(streamed_ops, plan.streamed_ops.size());
  if (plans++ == 0) predicted_us = plan.predicted_step_us;
}

void Summary::forget_plans() {
  peak_unlimited_bytes = streamed_ops = plans = 0;
  predicted_us = 0;
}

void Summary::write(const std::string& path) const {
  nlohmann::ordered_json json{{"policy", policy},
                              {"fast_limit_bytes", fast_limit_bytes},
                              {"peak_fast_bytes", peak_fast_bytes},
                              {"peak_unlimited_bytes", peak_unlimited_bytes},
                              {"streamed_ops", streamed_ops},
                              {"plans", plans},
                              {"predicted_ms", predicted_us / 1e3},
                              {"steps", nlohmann::ordered_json::array()}};
  for (const auto& row : steps)
    json["steps"].push_back({{"step", row.step},
                             {"ms", row.ms},
                             {"phase", row.phase},
                             {"demand_faults", row.demand_faults},
                             {"promoted_bytes", row.promoted_bytes},
                             {"demoted_bytes", row.demoted_bytes},
                             {"stall_ms", row.stall_ms}});
  const auto text = json.dump(1) + "\n";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) throw Error(fmt::format("could not write the summary to {}", path), errno);
  const auto written = ::write(fd, text.data(), text.size());
  const int code = written == static_cast<ssize_t>(text.size()) ? 0 : written < 0 ? errno : ENOSPC;
  close(fd);
  if (code != 0) throw Error(fmt::format("could not write the summary to {}", path), code);
}

}  // namespace sentinel
