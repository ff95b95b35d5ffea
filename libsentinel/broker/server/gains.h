// What memory is worth to jobs whose step is known: planned and simulated as they will run. Takes
// seconds; for a thread beside the broker's loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "broker/division.h"
#include "broker/ledger.h"
#include "sentinel/profile.h"

namespace sentinel {

struct StudiedJob {
  JobId id = 0;
  std::shared_ptr<const Profile> profile;
  std::string policy, machine;
  Need need;  // without a curve: one is wanted
};

struct Findings {
  std::map<JobId, std::vector<CurvePoint>> curves;  // of those that had none
  std::map<JobId, std::uint64_t> shares;  // of all, where their policy plans them together
  std::vector<std::string> failures;
};

// Never throws: what cannot be planned is a failure, and has no curve.
Findings study_jobs(const std::vector<StudiedJob>&, std::uint64_t total);

// A tensor trace, as it came from a job. Throws Error.
std::shared_ptr<const Profile> profile_of(std::string_view trace);

}  // namespace sentinel
