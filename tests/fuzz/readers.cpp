#include "fuzz/readers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "base/units.h"
#include "plan/check/explain.h"
#include "plan/check/plan_file.h"
#include "plan/check/verify.h"
#include "sentinel/analysis.h"
#include "sentinel/error.h"
#include "sentinel/policy.h"
#include "sim/machine_file.h"
#include "trace/plain_data.h"
#include "trace/pytorch_snapshot.h"
#include "trace/tensor_trace.h"

namespace sentinel::fuzz {
namespace {

// A file that lies in memory only; readers take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("no memory file");
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

constexpr std::string_view kTrace =
    R"({"format":"tensor-trace","version":1,"source":"x","model":"m","batch":2}
{"t":0,"bytes":8192,"kind":"global"}
{"t":1,"bytes":65536,"kind":"intermediate"}
{"t":2,"bytes":65536,"kind":"intermediate"}
{"t":3,"bytes":4096,"kind":"workspace"}
{"k":0,"name":"a","us":10,"in":[0],"out":[1,3],"phase":"forward","layer":0,"acc":{"1":7}}
{"k":1,"name":"b","us":2.5,"in":[0,1],"out":[2],"phase":"forward","layer":1}
{"k":2,"name":"c","us":20,"in":[1,2],"out":[0],"phase":"backward","op":"p"}
)";

Profile profile_of(std::string_view trace) {
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

void trace(std::string_view bytes) { use(profile_of(bytes)); }

void machine(std::string_view bytes) {
  const auto read = sim::parse_machine(bytes, "m.toml");
  sim::parse_machine(sim::machine_to_toml(read), "again");
}

void plan(std::string_view bytes) {
  static const Profile profile = profile_of(kTrace);
  const auto read = plan::plan_from_json(std::string(bytes), "plan");
  if (plan::verify(read, profile).empty()) plan::explain(read, profile);
}

void snapshot(std::string_view bytes) {
  const MemoryFile file(bytes);
  use(read_pytorch_snapshot(file.path()));
}

std::vector<std::string> traces() { return {std::string(kTrace)}; }

std::vector<std::string> machines() {
  std::vector<std::string> all;
  for (const auto& builtin : sim::builtin_machines()) all.emplace_back(builtin.toml);
  return all;
}

// Of a policy that moves and of one that replays.
std::vector<std::string> plans() {
  std::vector<std::string> all;
  const auto profile = profile_of(kTrace);
  const auto on = sim::find_machine("v100-16gb");
  for (const char* name : {"g10", "superneurons", "ideal"}) {
    const auto policy = make_policy(name);
    auto& planned = dynamic_cast<PlannedPolicy&>(*policy);
    all.push_back(plan::plan_to_json(planned.plan(profile, on, {.fast_bytes = 160_KiB})));
  }
  return all;
}

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

std::vector<std::string> snapshots() { return {std::string(kSnapshot), pickled()}; }

constexpr Reader kReaders[] = {{"trace", trace, traces},
                               {"machine", machine, machines},
                               {"plan", plan, plans},
                               {"snapshot", snapshot, snapshots}};

}  // namespace

std::span<const Reader> readers() { return kReaders; }

}  // namespace sentinel::fuzz
