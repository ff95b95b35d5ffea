#include "fuzz/step_readers.h"

#include <sstream>

#include "base/units.h"
#include "fuzz/input_files.h"
#include "fuzz/steps.h"
#include "plan/check/explain.h"
#include "plan/check/plan_file.h"
#include "plan/check/verify.h"
#include "sentinel/analysis.h"
#include "sentinel/policy.h"
#include "sim/machine_file.h"
#include "sim/snapshot_export.h"
#include "trace/pytorch_snapshot.h"
#include "trace/read_any.h"
#include "trace/store.h"
#include "trace/tensor_trace.h"

namespace sentinel::fuzz {
namespace {

constexpr std::string_view kSnapshot = R"({"segments":[{"device":0,"address":4096,"total_size":8192,
"blocks":[{"size":512,"state":"active_allocated"},{"size":7680,"state":"inactive"}]}],
"device_traces":[[
{"action":"alloc","addr":8192,"size":512,"time_us":3,"frames":[{"filename":"/a/m.py","line":3,"name":"f"}]},
{"action":"alloc","addr":4608,"size":1024,"time_us":4.5,"frames":[]},
{"action":"free_requested","addr":8192,"size":512,"time_us":6,"frames":[]},
{"action":"free_requested","addr":12288,"size":64,"time_us":9}]]})";

// The same in pickle's protocol 4, by hand: {"segments": [], "device_traces": [[{…}]]}.
std::string pickled() {
  const auto text = [](std::string_view t) {
    return std::string("\x8c") + static_cast<char>(t.size()) + std::string(t) + "\x94";
  };
  const auto event = [&](std::string_view action, char address, char us) {
    return "}(" + text("action") + text(action) + text("addr") + "K" + address + text("size") +
           "M" + std::string("\x00\x02", 2) + text("time_us") + "K" + us + "u";
  };
  return "\x80\x04}\x94(" + text("segments") + "]" + text("device_traces") + "](](" +
         event("alloc", 1, 2) + event("alloc", 2, 3) + event("free_requested", 1, 5) + "ee" + "u.";
}

// A profile as a recording leaves it, with all that a trace lacks.
Profile recorded() {
  auto profile = profile_of_trace(kTrace);
  auto& made = profile.tensors[1];
  made.again = {made.ordinal + 1, made.ordinal + 2};
  profile.natural.push_back({TensorId(1), 0x7f00'0000'1000});
  return profile;
}

std::string stored(const Profile& profile) {
  const auto path = fresh_path();
  write_profile(path, profile);
  return bytes_of(path);
}

std::string packed_trace() {
  const auto path = fresh_path() + ".gz";
  write_tensor_trace(profile_of_trace(kTrace), path);
  return bytes_of(path);
}

}  // namespace

Profile profile_of_trace(std::string_view trace) {
  const MemoryFile file(trace);
  return read_tensor_trace(file.path());
}

void use(const Profile& profile) {
  lifetimes(profile);
  counts(profile);
  live_bytes(profile);
  working_set_bytes(profile);
  std::ostringstream text;
  write_tensor_trace(profile, text);
}

void read_trace(std::string_view bytes) { use(profile_of_trace(bytes)); }

void read_stored_profile(std::string_view bytes) { use(read_any(named_file(bytes))); }

void read_machine(std::string_view bytes) {
  const auto read = sim::parse_machine(bytes, "m.toml");
  sim::parse_machine(sim::machine_to_toml(read), "again");
}

void read_stored_plan(std::string_view bytes) {
  static const Profile profile = profile_of_trace(kTrace);
  const auto read = plan::plan_from_json(std::string(bytes), "plan");
  if (plan::verify(read, profile).empty()) plan::explain(read, profile);
}

void read_snapshot(std::string_view bytes) {
  const MemoryFile file(bytes);
  use(read_pytorch_snapshot(file.path()));
}

std::vector<std::string> traces() { return {std::string(kTrace), packed_trace()}; }

std::vector<std::string> profiles() {
  return {stored(profile_of_trace(kTrace)), stored(recorded())};
}

std::vector<std::string> machines() {
  std::vector<std::string> all;
  for (const auto& builtin : sim::builtin_machines()) all.emplace_back(builtin.toml);
  return all;
}

// Of a policy that moves and of one that replays.
std::vector<std::string> plans() {
  std::vector<std::string> all;
  const auto profile = profile_of_trace(kTrace);
  const auto on = sim::find_machine("v100-16gb");
  for (const char* name : {"g10", "superneurons", "ideal"}) {
    const auto policy = make_policy(name);
    auto& planned = dynamic_cast<PlannedPolicy&>(*policy);
    all.push_back(plan::plan_to_json(planned.plan(profile, on, {.fast_bytes = 160_KiB})));
  }
  return all;
}

std::vector<std::string> snapshots() {
  return {std::string(kSnapshot), pickled(), sim::pytorch_snapshot(profile_of_trace(kTrace))};
}

}  // namespace sentinel::fuzz
