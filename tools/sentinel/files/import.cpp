// `sentinel import`: makes a profile of a trace taken elsewhere.
#include <fmt/format.h>

#include <memory>

#include "base/text.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "trace/pytorch_snapshot.h"
#include "trace/store.h"
#include "trace/tensor_trace.h"

namespace sentinel::cli {
namespace {

struct Settings {
  std::string trace, output, format = "tensor-trace";
};

int import(const Settings& s) {
  const auto profile =
      s.format == "tensor-trace" ? read_tensor_trace(s.trace) : read_pytorch_snapshot(s.trace);
  write_profile(s.output, profile);
  if (const auto& missing = profile.meta.incomplete_reason; !missing.empty())
    say(fmt::format("{}: {}", s.trace, missing));
  return print(fmt::format("{}: {} tensors, {} ops, {} layers\nNext\n  sentinel report {}\n",
                           printable(s.output), profile.tensors.size(), profile.ops.size(),
                           profile.layers.size(), printable(s.output)));
}

}  // namespace

Action declare_import(Form& form) {
  const auto s = std::make_shared<Settings>();
  form.rows = {
      {"TRACE", "TRACE", "what to read; compressed or not", &s->trace, true},
      written({"-o,--output", "FILE", "the profile to write", &s->output, true}),
      {"--format", "FORMAT", "what it is", &s->format, false, {"tensor-trace", "pytorch-snapshot"}},
  };
  return [s] { return import(*s); };
}

}  // namespace sentinel::cli
