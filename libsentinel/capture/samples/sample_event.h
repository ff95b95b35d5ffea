// Which hardware event of this processor samples data addresses. Reading the machine and
// choosing are apart, so that each processor's choice and each refusal can be tested on any other.
//
// Intel: PEBS load latency, and all stores. Load latency counts the loads that the processor picks
// to be timed, stores are all of them: reads compare with reads, writes with writes, the two only
// roughly. AMD: IBS op, which picks micro-ops of any kind, loads and stores at the same rate.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sentinel {

// What the choice depends on.
struct SampleFacts {
  std::string vendor;            // of /proc/cpuinfo: "GenuineIntel", "AuthenticAMD"
  bool virtual_machine = false;  // the processor says that a hypervisor runs it
  std::optional<int> paranoid;   // kernel.perf_event_paranoid; absent: no perf events at all
  bool core_pmu = false;         // the kernel has the processor's counters
  bool hybrid = false;           // cores of two kinds
  int max_precise = 0;           // 0: no PEBS
  bool loads_aux = false;        // load latency counts only beside another event
  int ibs_op_type = -1;          // -1: none
  bool ibs_counts_ops = false;   // else it counts cycles
};

// `root` holds proc/ and sys/.
SampleFacts read_sample_facts(const std::filesystem::path& root = "/");

struct SampleEvent {
  std::string name;  // as libpfm4 or perf call it
  perf_event_attr attr{};
  std::optional<perf_event_attr> leader;  // has to be counted beside it
};

struct SampleEvents {
  std::vector<SampleEvent> events;  // empty: none
  std::string reason, remedy;       // empty unless none
  std::uint32_t period = 1;         // accesses that one sample stands for
  std::string names() const;
};

// `pmu`: libpfm4's name of another processor with two colons ("skx::"), for tests.
SampleEvents choose_sample_events(const SampleFacts&, std::string_view pmu = "");

// Why the kernel refuses chosen events, by the errno of perf_event_open, and what to do about it.
SampleEvents refused_sample_events(const SampleFacts&, int error);

}  // namespace sentinel
