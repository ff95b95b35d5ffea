// `sentinel export`: writes a profile as a tensor trace, for Perfetto, or for PyTorch's memory
// viewer.
#include <memory>
#include <sstream>

#include "cli/terminal.h"
#include "cli/verbs.h"
#include "report/report.h"
#include "sentinel/error.h"
#include "sim/snapshot_export.h"
#include "trace/read_any.h"
#include "trace/tensor_trace.h"

namespace sentinel::cli {
namespace {

struct Settings {
  std::string file, output, format = "tensor-trace";
};

std::string perfetto(const Profile& profile) {
  std::ostringstream text;
  make_reporter("summary", "perfetto")->render(profile, text, {});
  return text.str();
}

int export_profile(const Settings& s) {
  const auto profile = read_any(s.file);
  if (s.format == "perfetto") return print_to(s.output, perfetto(profile));
  if (s.format == "pytorch-snapshot") return print_to(s.output, sim::pytorch_snapshot(profile));
  if (s.output != "-") return write_tensor_trace(profile, s.output), kDone;
  std::ostringstream text;
  write_tensor_trace(profile, text);
  return print(text.str());
}

}  // namespace

Action declare_export(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      {"FILE", "FILE", "a profile, or a tensor trace", &s->file, true},
      written({"-o,--output", "TRACE",
               "what to write; a tensor trace is compressed where it ends with .gz; - for stdout", &s->output, true}),
      {"--format",
       "FORMAT",
       "as what",
       &s->format,
       false,
       {"tensor-trace", "perfetto", "pytorch-snapshot"}},
  };
  return [s] { return export_profile(*s); };
}

}  // namespace sentinel::cli
