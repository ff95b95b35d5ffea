// `sentinel trace`: runs a training with tensors that have sizes and no memory, and keeps its
// steady step as a trace or a profile.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/text.h"
#include "base/units.h"
#include "cli/profile_files.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "trace/store.h"
#include "trace/tensor_trace.h"
#include "training/launch.h"
#include "training/tracing.h"

namespace sentinel::cli {
namespace {

namespace fs = std::filesystem;

struct Settings {
  std::string output = "trace.sentinel", machine = "local";
};

// Beside what it becomes, so that it can take its place; removed where it does not.
class Draft {
 public:
  explicit Draft(const fs::path& output)
      : path_(fmt::format("{}.{}.jsonl{}", fs::absolute(output).string(), getpid(),
                          output.extension() == ".jsonl" ? "" : ".gz")) {}
  ~Draft() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

int nothing(int status) {
  if (status == kOwnFailure) return status;  // Python has said why
  say("no trace was written: no training step was seen. A step ends where an optimizer of PyTorch "
      "2.1 or later steps; others are profiled by `sentinel record`, which runs them");
  return status == 0 ? kOwnFailure : status;
}

bool is_tensor_trace(const std::string& output) {
  return output.ends_with(".jsonl") || output.ends_with(".jsonl.gz");
}

void keep(const Draft& draft, const Profile& profile, const std::string& output) {
  if (is_tensor_trace(output))
    fs::rename(draft.path(), output);
  else
    write_profile(output, profile);
}

std::string parameters(const Profile& profile) {
  std::uint64_t bytes = 0;
  for (const auto& tensor : profile.tensors)
    if (!tensor.alloc_op && !tensor.free_op) bytes += tensor.bytes;
  return print_bytes(bytes);
}

void tell(const Profile& profile, const Settings& s) {
  const auto sets = working_set_bytes(profile);
  const auto largest = sets.empty() ? 0 : *std::ranges::max_element(sets);
  const auto machine = s.machine == "local" ? std::string("this machine") : printable(s.machine);
  say(fmt::format("trace written to {}: {} tensors, {} ops, {} layers", printable(s.output),
                  profile.tensors.size(), profile.ops.size(), profile.layers.size()));
  say(fmt::format(
      "its tensors take {} at once, of which {} live through the whole step; the largest op "
      "needs {}. Workspace within ops is not in a trace",
      print_bytes(peak_live_bytes(profile)), parameters(profile), print_bytes(largest)));
  say(fmt::format("a step takes {} where all of it fits, an estimate for {}",
                  print_us(profile.meta.step_us), machine));
  say(fmt::format("Next: sentinel simulate {} --machine {} --policy all", printable(s.output),
                  s.machine == "local" ? "a100-g10" : printable(s.machine)));
}

int trace(const Settings& s, const std::vector<std::string>& command) {
  if (!is_tensor_trace(s.output)) require_writable_profile(s.output);
  const Draft draft(s.output);
  const TraceEnvironment tracing(draft.path(), s.machine);
  const int status = run_command(command);
  if (!fs::exists(draft.path())) return nothing(status);
  const auto profile = read_tensor_trace(draft.path());
  keep(draft, profile, s.output);
  tell(profile, s);
  if (const auto& note = profile.meta.incomplete_reason; !note.empty()) say(note);
  return status;
}

}  // namespace

Action declare_trace(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      written({"-o,--output", "FILE",
               "a profile, or a tensor trace where it ends in .jsonl.gz or .jsonl", &s->output}),
      {"--machine", "NAME|FILE", "for which op times are estimated; local: this one, measured",
       &s->machine},
  };
  form.takes_command = true;
  return [s, &form] { return trace(*s, form.command); };
}

}  // namespace sentinel::cli
