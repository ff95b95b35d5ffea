// What memory is worth to jobs whose step is known: planned and simulated as they will run. Takes
// seconds; for a thread beside the broker's loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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
  std::uint64_t digest = 0;  // of its trace
  std::string policy, machine;
  Need need;
  bool wants_curve = false;
};

struct Findings {
  std::map<JobId, std::vector<CurvePoint>> curves;  // of those that want one; empty: none was found
  std::map<JobId, std::uint64_t> shares;  // of all, where their policy plans them together
  std::vector<std::string> failures;
};

// Never throws: what cannot be planned is a failure, and has an empty curve. Once `over` is true it
// ends within some seconds, with what was found.
Findings study_jobs(const std::vector<StudiedJob>&, std::uint64_t total,
                    const std::atomic<bool>& over);

// What was found before, that nothing can be found included: a job that connects again, or trains
// the same once more, is not studied anew.
class KnownCurves {
 public:
  void keep(const StudiedJob&, std::vector<CurvePoint>);
  std::optional<std::vector<CurvePoint>> find(const StudiedJob&) const;  // none: not studied yet

 private:
  static constexpr std::size_t kMost = 64;

  std::map<std::string, std::vector<CurvePoint>> curves_;
};

// A tensor trace, as it came from a job. Throws Error.
std::shared_ptr<const Profile> profile_of(std::string_view trace);

}  // namespace sentinel
