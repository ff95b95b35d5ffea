// What a session publishes for `sentinel top`: the figures of the step that has ended, and what the
// plan in force does. After a step it costs a copy of the status (runtime/status/status.h), and
// nothing else. Guarded by the session's lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "options/session_options.h"
#include "runtime/limit/summary.h"
#include "runtime/status/status_page.h"
#include "runtime/step/bucket.h"

namespace sentinel {

// Each plan is described once: kinds of step may take turns.
class DescribedPlans {
 public:
  // All but StatusPlan::kinds. `number`: Bucket::space_plan(), which no other plan has.
  const StatusPlan& of(std::uint32_t number, const Profile&, const Plan&);

 private:
  std::map<std::uint32_t, StatusPlan> plans_;
};

class Publication {
 public:
  // A training has begun.
  void begin(const SessionOptions&, const Summary&, const std::string& framework);
  // The last of the summary's steps has ended.
  void step_ended(const Summary&, const EngineCounters&);
  // The next step begins: under that plan, if any; or all is the pager's; or nothing is managed.
  void step_begins(const Bucket*, bool paged, bool idle);
  // The training is over: whoever looks at it is told so, and nobody else finds it any more.
  void end();

 private:
  void show(const Bucket&);

  StatusPage page_;
  std::unique_ptr<Status> status_;  // null: nothing is published
  DescribedPlans described_;
  std::optional<std::uint32_t> shown_;  // Bucket::space_plan()
};

}  // namespace sentinel
