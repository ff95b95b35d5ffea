// Profiles are read first, in the order of their arrival; then all jobs are studied that need it.
#include "broker/server/studies.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "base/failure.h"

namespace sentinel {

Studies::Studies(Loop& loop, std::uint64_t total, StudiesListener& listener)
    : loop_(loop), total_(total), listener_(listener) {}

void Studies::profiled(JobId id, std::string trace, std::string policy, std::string machine) {
  const auto digest = std::hash<std::string>{}(trace);
  auto& step = steps_[id];
  const bool same = step.digest == digest;
  step.digest = digest, step.policy = std::move(policy), step.machine = std::move(machine);
  step.stale = true;
  if (!same) {
    step.profile = nullptr;
    std::erase_if(unread_, [&](const Unread& other) { return other.id == id; });
    unread_.push_back({.id = id, .digest = digest, .trace = std::move(trace)});
  }
  due_ = true;
  next();
}

void Studies::ends(JobId id) {
  steps_.erase(id);
  std::erase_if(unread_, [id](const Unread& unread) { return unread.id == id; });
}

void Studies::look() {
  due_ = true;
  next();
}

void Studies::close() {
  closing_ = true;
  while (busy_) loop_.run_once();
}

void Studies::next() {
  if (busy_ || closing_) return;
  if (!unread_.empty()) {
    auto unread = std::move(unread_.front());
    unread_.pop_front();
    return read(std::move(unread));
  }
  if (!std::exchange(due_, false)) return;
  const auto jobs = known_jobs();
  if (!jobs.empty()) study(jobs);
}

void Studies::read(Unread unread) {
  struct Outcome {
    std::shared_ptr<const Profile> profile;
    std::string failure;
  };
  const auto outcome = std::make_shared<Outcome>();
  const auto trace = std::make_shared<const std::string>(std::move(unread.trace));
  busy_ = true;
  in_background(
      loop_,
      [=] {
        try {
          outcome->profile = profile_of(*trace);
        } catch (const std::exception& error) {
          outcome->failure = in_words(error);
        }
      },
      [=, this, id = unread.id, digest = unread.digest] {
        busy_ = false;
        if (closing_) return;
        const auto step = steps_.find(id);
        if (step != steps_.end() && step->second.digest == digest) {
          step->second.profile = outcome->profile;
          if (!outcome->profile) {
            steps_.erase(step);
            listener_.unreadable(id, outcome->failure);
          }
        }
        next();
      });
}

// Their needs are without a curve where one is wanted. What is known already is told on the way.
std::vector<StudiedJob> Studies::known_jobs() {
  std::vector<StudiedJob> jobs;
  for (const auto& [id, step] : steps_) {
    if (!step.profile) continue;
    jobs.push_back({.id = id,
                    .profile = step.profile,
                    .digest = step.digest,
                    .policy = step.policy,
                    .machine = step.machine,
                    .need = listener_.need_of(id)});
    auto& job = jobs.back();
    if (!job.need.curve.empty() && !step.stale) continue;
    const auto known = curves_.find(job);
    job.need.curve = known.value_or(std::vector<CurvePoint>{});
    job.wants_curve = !known;
  }
  for (const auto& job : jobs)
    if (!job.need.curve.empty() &&
        (steps_.at(job.id).stale || listener_.need_of(job.id).curve.empty()))
      learn(job.id, job.need.curve);
  return jobs;
}

void Studies::learn(JobId id, std::vector<CurvePoint> curve) {
  steps_.at(id).stale = false;
  listener_.learned(id, std::move(curve));
}

void Studies::study(const std::vector<StudiedJob>& jobs) {
  const auto found = std::make_shared<Findings>();
  const bool all = jobs.size() == listener_.jobs();
  busy_ = true;
  in_background(
      loop_, [=, this] { *found = study_jobs(jobs, total_, closing_); },
      [=, this] {
        busy_ = false;
        if (closing_) return;
        for (const auto& job : jobs) {
          const auto curve = found->curves.find(job.id);
          if (curve == found->curves.end()) continue;
          curves_.keep(job, curve->second);
          const auto step = steps_.find(job.id);
          if (step != steps_.end() && step->second.digest == job.digest && !curve->second.empty())
            learn(job.id, curve->second);
        }
        if (all && jobs.size() == listener_.jobs() && !found->shares.empty())
          listener_.suggested(std::move(found->shares));
        for (const auto& failure : found->failures) listener_.unknown(failure);
        listener_.studied();
        next();
      });
}

}  // namespace sentinel
