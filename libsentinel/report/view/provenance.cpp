// Puts a profile's source, machine and fidelity into words.
#include "report/view/provenance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.h"

namespace sentinel {
namespace {

struct SourceWords {
  const char *source, *what;
};

// Of sources that count something else than what the processors' kernel sees being opened.
constexpr const char* kUnverified = "; not verified on hardware";
constexpr SourceWords kOfAGpu[] = {
    {"kernel-hmm", "a GPU's openings of the host's memory, whose page tables it mirrors (HMM)"},
    {"kernel-ats", "a GPU's openings of the host's memory, by the host's page tables (ATS)"},
    {"cupti", "a GPU's page faults in managed memory, without what came along with them"},
};

std::string source_of(const ProfileMeta& meta) {
  if (meta.source.empty()) return "unknown source";
  const auto* const words = std::ranges::find(kOfAGpu, meta.source, &SourceWords::source);
  if (words == std::end(kOfAGpu)) return meta.source;
  return fmt::format("{}: {}{}", meta.source, words->what, kUnverified);
}

std::string sampling(const StepView& step) {
  if (step.profile.meta.exact) return "exact";
  const auto sampled = std::ranges::count_if(step.profile.tensors,
                                             [](const Tensor& t) { return t.sample_stride > 1; });
  const auto error = step.profile.meta.sample_error;
  const auto& source = step.profile.meta.source;
  const auto what = source == "samples" ? std::string("sampled loads and stores, not openings")
                    : source == "cupti" ? std::string("a page at most once an op")
                                        : fmt::format("{} of {} tensors sampled", sampled,
                                                      step.profile.tensors.size());
  return fmt::format("{}, {}", what,
                     error > 0 ? "stated error ±" + print_percent(error) : "error not stated");
}

std::string machine(const MachineRecord& m) {
  std::vector<std::string> parts;
  if (!m.hostname.empty()) parts.push_back(m.hostname);
  if (!m.cpu.empty()) parts.push_back(m.cpu);
  if (m.cores > 0) parts.push_back(fmt::format("{} cores", m.cores));
  if (m.memory_bytes > 0) parts.push_back(print_bytes(m.memory_bytes) + " memory");
  if (m.llc_bytes > 0) parts.push_back(print_bytes(m.llc_bytes) + " last-level cache");
  if (!m.kernel.empty()) parts.push_back("Linux " + m.kernel);
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string step_time(const ProfileMeta& meta, const Profile& profile) {
  const double us = meta.step_us > 0 ? meta.step_us : profile.ops.empty() ? 0 : ideal_us(profile);
  if (us <= 0) return "";
  auto text = print_us(us);
  if (meta.step_us <= 0) text += ", the sum of its ops";
  if (meta.profiled_step_us > 0)
    text += fmt::format(" ({} while profiled, {:.3g} times as long)",
                        print_us(meta.profiled_step_us), meta.profiled_step_us / us);
  return text;
}

std::string peak(const StepView& step) {
  if (step.live.empty()) return "";
  const auto& op = step.profile.ops[step.peak_op().index()];
  return fmt::format("{} of live tensors, at op {} ({}, {})", print_bytes(step.peak_live()),
                     step.peak_op().index(), op.name, name_of(op.phase));
}

}  // namespace

std::string partial_notice(const StepView& step) {
  const auto& meta = step.profile.meta;
  if (meta.complete) return "";
  return fmt::format(
      "Partial profile: {}. The figures cover what was recorded until then.",
      meta.incomplete_reason.empty() ? "the recording ended early" : meta.incomplete_reason);
}

std::string fidelity(const StepView& step) {
  const auto& meta = step.profile.meta;
  const auto source = source_of(meta);
  const auto missing = meta.complete && !meta.incomplete_reason.empty()
                           ? fmt::format("; {}", meta.incomplete_reason)
                           : "";
  if (!step.counted)
    return source + ": no memory accesses counted, a tensor counts once for each op that names it" +
           missing;
  const auto window = meta.window_pages == 0
                          ? std::string("no window")
                          : fmt::format("window of {} pages ({})", meta.window_pages,
                                        print_bytes(meta.window_pages * step.page()));
  return fmt::format("{}, {}, reads and writes {}, {}{}", source, sampling(step),
                     meta.read_write ? "apart" : "together", window, missing);
}

std::vector<Fact> provenance(const StepView& step) {
  const auto& meta = step.profile.meta;
  const auto model = meta.model.empty() ? std::string("unnamed") : meta.model;
  std::vector<Fact> facts{
      {"model", meta.batch > 0 ? fmt::format("{}, batch {}", model, meta.batch) : model},
      {meta.source == "trace" ? "origin" : "command", meta.command},
      {"framework", meta.framework},
      {"machine", machine(meta.machine)},
      {"recorded", meta.created},
      {"counts", fidelity(step)},
      {"step", step_time(meta, step.profile)},
      {"contents", fmt::format("{} tensors, {} ops, {} layers", step.profile.tensors.size(),
                               step.profile.ops.size(), step.layers.size())},
      {"peak", peak(step)}};
  std::erase_if(facts, [](const Fact& fact) { return fact.value.empty(); });
  return facts;
}

}  // namespace sentinel
