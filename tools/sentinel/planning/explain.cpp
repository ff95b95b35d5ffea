// `sentinel explain`: says why a plan, or a tensor in it, is as it is.
#include "plan/check/explain.h"

#include <fmt/format.h>

#include <memory>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "plan/check/plan_file.h"
#include "plan/step/parts.h"
#include "sentinel/error.h"
#include "trace/read_any.h"

namespace sentinel::cli {
namespace {

struct Settings {
  std::string plan, tensor, profile;
};

int explain(const Settings& s) {
  const auto plan = plan::read_plan(s.plan);
  const auto path = s.profile.empty() ? plan.profile_path : s.profile;
  if (path.empty())
    throw Error(fmt::format(
        "{} does not say which profile it was made from; name it with --profile", s.plan));
  auto profile = read_any(path);
  plan::check_sound(plan, profile, s.plan);
  profile = plan::in_parts(profile, plan.part_bytes);
  return print(s.tensor.empty() ? plan::explain(plan, profile)
                                : plan::explain_tensor(plan, profile, s.tensor));
}

}  // namespace

Action declare_explain(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      {"PLAN", "PLAN", "made by sentinel plan", &s->plan, true},
      {"TENSOR", "TENSOR", "its name or number; the whole plan if absent", &s->tensor},
      {"--profile", "FILE", "the plan's profile, where it was moved to another place", &s->profile},
  };
  return [s] { return explain(*s); };
}

}  // namespace sentinel::cli
