// What the broker knows of its jobs' steps: the profiles that they send, and what memory is worth
// to each of them. Reads, plans and simulates beside the loop, one thing at a time. All calls are
// the loop's thread's, and so are those of the listener.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "broker/division.h"
#include "broker/ledger.h"
#include "broker/server/gains.h"
#include "broker/server/loop.h"
#include "sentinel/profile.h"

namespace sentinel {

// Who is told. A job that has ended is not spoken of.
class StudiesListener {
 public:
  virtual ~StudiesListener() = default;
  virtual std::size_t jobs() const = 0;  // with and without a profile
  // A job's need of now; its curve is empty where none is known.
  virtual Need need_of(JobId) const = 0;
  virtual void learned(JobId, std::vector<CurvePoint>) = 0;
  // All jobs' policy plans them together: these are their shares.
  virtual void suggested(std::map<JobId, std::uint64_t> shares) = 0;
  virtual void unreadable(JobId, const std::string& why) = 0;  // its profile is none
  virtual void unknown(const std::string& why) = 0;            // what memory is worth to a job
  virtual void studied() = 0;                                  // that is all for now
};

class Studies {
 public:
  Studies(Loop&, std::uint64_t total, StudiesListener&);

  // A job has sent its step. One that it has sent before is not read again.
  void profiled(JobId, std::string trace, std::string policy, std::string machine);
  void ends(JobId);
  void look();  // jobs have come or gone, or need something else
  // Ends what is under way: within some seconds. Nobody is told anything any more.
  void close();

 private:
  struct Step {
    std::shared_ptr<const Profile> profile;  // null: it is being read
    std::uint64_t digest = 0;                // of the trace that it came as
    std::string policy, machine;
    bool stale = false;  // the job's curve is of another profile
  };
  struct Unread {
    JobId id = 0;
    std::uint64_t digest = 0;
    std::string trace;
  };

  void next();
  void read(Unread);
  void study(const std::vector<StudiedJob>&);
  std::vector<StudiedJob> known_jobs();
  void learn(JobId, std::vector<CurvePoint>);

  Loop& loop_;
  const std::uint64_t total_;
  StudiesListener& listener_;
  KnownCurves curves_;
  std::map<JobId, Step> steps_;
  std::deque<Unread> unread_;
  bool due_ = false, busy_ = false;
  std::atomic<bool> closing_ = false;
};

}  // namespace sentinel
