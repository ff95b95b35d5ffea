// The trace-event format that ui.perfetto.dev and chrome://tracing read: one complete event ("X")
// an op and a layer, one counter event ("C") an op. Ops follow each other by their own times.
#include <ostream>

#include "report/text/json.h"
#include "report/text/renderers.h"

namespace sentinel {
namespace {

constexpr int layer_track = 1;  // the phases' tracks follow
int track_of(Phase phase) { return 2 + static_cast<int>(phase); }

class EventList {
 public:
  explicit EventList(std::ostream& out) : out_(out) {}
  void add(const Json& event) {
    out_ << (first_ ? "\n" : ",\n") << compact(event);
    first_ = false;
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

void name_tracks(const StepView& step, EventList& events) {
  const auto& model = step.profile.meta.model;
  events.add({{"ph", "M"},
              {"pid", 1},
              {"name", "process_name"},
              {"args", {{"name", model.empty() ? "training step" : model}}}});
  const auto name = [&](int track, std::string_view text) {
    events.add({{"ph", "M"},
                {"pid", 1},
                {"tid", track},
                {"name", "thread_name"},
                {"args", {{"name", text}}}});
    events.add({{"ph", "M"},
                {"pid", 1},
                {"tid", track},
                {"name", "thread_sort_index"},
                {"args", {{"sort_index", track}}}});
  };
  name(layer_track, "layers");
  for (const auto phase : {Phase::forward, Phase::backward, Phase::optimizer})
    name(track_of(phase), name_of(phase));
}

Json slice(std::string_view name, std::string_view category, int track, double at, double us) {
  return {{"ph", "X"},       {"pid", 1}, {"tid", track}, {"name", name.empty() ? "?" : name},
          {"cat", category}, {"ts", at}, {"dur", us}};
}

void add_op(const StepView& step, std::size_t i, double at, double us, EventList& events) {
  const auto& op = step.profile.ops[i];
  auto event = slice(op.name, name_of(op.phase), track_of(op.phase), at, us);
  event["args"] = {{"op", i},
                   {"layer", layer_label(step, op.layer)},
                   {"parent", op.parent},
                   {"inputs", op.in.size()},
                   {"outputs", op.out.size()},
                   {"working_set_bytes", step.working_set[i]}};
  events.add(event);
  const auto counter = [&](std::string_view name, std::uint64_t bytes) {
    events.add({{"ph", "C"}, {"pid", 1}, {"name", name}, {"ts", at}, {"args", {{"bytes", bytes}}}});
  };
  counter("live bytes", step.live[i]);
  counter("hot bytes (over 100 accesses per page)", step.hot_live[i]);
  counter("working set bytes", step.working_set[i]);
}

}  // namespace

void perfetto_json(const Scene& scene, std::ostream& out) {
  const auto& step = scene.step;
  const auto& ops = step.profile.ops;
  double total = 0;
  for (const auto& op : ops) total += op.us;
  // Without any times every op is drawn one microsecond wide, so that the order is still seen.
  const auto us_of = [&](const Op& op) { return total > 0 ? op.us : 1.0; };
  out << "{\"displayTimeUnit\":\"ms\",\"otherData\":"
      << compact({{"model", step.profile.meta.model},
                  {"command", step.profile.meta.command},
                  {"times", total > 0 ? "measured" : "unknown, one microsecond each"}})
      << ",\"traceEvents\":[";
  EventList events(out);
  name_tracks(step, events);
  double at = 0;
  for (std::size_t i = 0; i < ops.size();) {
    const auto layer = ops[i].layer;
    const double start = at;
    for (; i < ops.size() && ops[i].layer == layer; at += us_of(ops[i++]))
      add_op(step, i, at, us_of(ops[i]), events);
    events.add(slice(layer_label(step, layer), "layer", layer_track, start, at - start));
  }
  out << "\n]}\n";
}

}  // namespace sentinel
