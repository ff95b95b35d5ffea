// Reads the processor's facts from /sys and /proc, and chooses Intel's or AMD's event by them.
#include "capture/samples/sample_event.h"

#include <fmt/format.h>
#include <perfmon/pfmlib_perf_event.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <span>
#include <sstream>

#include "capture/samples/sample_buffer.h"

namespace sentinel {
namespace {

namespace fs = std::filesystem;

// Primes, or 16 of them as IBS demands: a loop's length is not likely to divide them.
constexpr std::uint32_t kPebsPeriod = 20011;
constexpr std::uint32_t kIbsPeriod = 16 * 6257;
constexpr const char* kOtherwise = "none needed: userfaultfd counts page openings";

// First that the processor has. Before Haswell, stores have addresses by an event of their own.
constexpr std::array kLoads{"MEM_TRANS_RETIRED:LOAD_LATENCY:ldlat=3",
                            "MEM_TRANS_RETIRED:LATENCY_ABOVE_THRESHOLD:ldlat=3"};
constexpr std::array kStores{"MEM_TRANS_RETIRED:PRECISE_STORE", "MEM_INST_RETIRED:ALL_STORES",
                             "MEM_UOPS_RETIRED:ALL_STORES"};

bool there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::optional<int> number_of(const fs::path& file) {
  const auto text = text_of(file);
  int number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  return ec == std::errc() ? std::optional(number) : std::nullopt;
}

// "vendor_id\t: AuthenticAMD" of the first processor.
std::string cpuinfo(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const auto colon = line.find(": "); line.starts_with(key) && colon != line.npos)
      return line.substr(colon + 2);
  return {};
}

SampleEvents none(std::string reason, std::string remedy = kOtherwise) {
  return {.reason = std::move(reason), .remedy = std::move(remedy)};
}

std::optional<perf_event_attr> encoded(const std::string& name) {
  perf_event_attr attr{.size = sizeof attr};
  pfm_perf_encode_arg_t argument{.attr = &attr, .size = sizeof argument};
  if (pfm_initialize() != PFM_SUCCESS ||
      pfm_get_os_event_encoding(name.c_str(), PFM_PLM3, PFM_OS_PERF_EVENT_EXT, &argument) !=
          PFM_SUCCESS)
    return {};
  return attr;
}

// A wake-up per sample keeps the kernel from holding samples back until many have gathered: each
// belongs to the op that runs.
void make_sampling(perf_event_attr& attr, std::uint32_t period) {
  attr.sample_period = period;
  attr.sample_type = kSampleType;
  attr.wakeup_events = 1;
}

std::optional<SampleEvent> pebs(std::string_view pmu, std::span<const char* const> names) {
  for (const char* name : names) {
    const auto attr = encoded(std::string(pmu) + name);
    if (!attr) continue;
    SampleEvent event{.name = name, .attr = *attr};
    make_sampling(event.attr, kPebsPeriod);
    event.attr.precise_ip = 1;  // more would place the instruction, which nobody asks for
    event.attr.exclude_kernel = event.attr.exclude_hv = 1;
    return event;
  }
  return {};
}

// Sapphire Rapids and later: mem-loads-aux has to lead mem-loads' group.
perf_event_attr loads_aux() {
  return {.type = PERF_TYPE_RAW,
          .size = sizeof(perf_event_attr),
          .config = 0x8203,
          .exclude_kernel = 1,
          .exclude_hv = 1};
}

SampleEvents intel(const SampleFacts& facts, std::string_view pmu) {
  if (facts.hybrid) return none("cores of two kinds count different events");
  if (facts.max_precise == 0)
    return none(facts.virtual_machine ? "this virtual machine's counters have no PEBS"
                                      : "this processor has no PEBS");
  auto loads = pebs(pmu, kLoads);
  const auto stores = pebs(pmu, kStores);
  if (!loads || !stores)
    return none("libpfm4 knows no event of this processor that samples data addresses",
                "a newer libpfm4 may");
  if (facts.loads_aux) loads->leader = loads_aux();
  return {.events = {*loads, *stores}, .period = kPebsPeriod};
}

// IBS cannot leave the kernel's accesses out by itself; their addresses belong to no tensor.
SampleEvents amd(const SampleFacts& facts) {
  if (facts.ibs_op_type < 0)
    return none(facts.virtual_machine ? "this virtual machine has no IBS"
                                      : "this processor or its firmware has no IBS");
  SampleEvent event{.name = facts.ibs_counts_ops ? "ibs_op/cnt_ctl=1/" : "ibs_op//",
                    .attr = {.type = static_cast<std::uint32_t>(facts.ibs_op_type),
                             .size = sizeof(perf_event_attr),
                             .config = facts.ibs_counts_ops ? 1ull << 19 : 0}};
  make_sampling(event.attr, kIbsPeriod);
  return {.events = {event}, .period = kIbsPeriod};
}

}  // namespace

SampleFacts read_sample_facts(const fs::path& root) {
  const auto cpu = text_of(root / "proc/cpuinfo");
  const auto devices = root / "sys/bus/event_source/devices";
  const bool hybrid = there(devices / "cpu_core");
  return {.vendor = cpuinfo(cpu, "vendor_id"),
          .virtual_machine = (" " + cpuinfo(cpu, "flags") + " ").find(" hypervisor ") != cpu.npos,
          .paranoid = number_of(root / "proc/sys/kernel/perf_event_paranoid"),
          .core_pmu = hybrid || there(devices / "cpu"),
          .hybrid = hybrid,
          .max_precise = number_of(devices / "cpu/caps/max_precise").value_or(0),
          .loads_aux = there(devices / "cpu/events/mem-loads-aux"),
          .ibs_op_type = number_of(devices / "ibs_op/type").value_or(-1),
          .ibs_counts_ops = there(devices / "ibs_op/format/cnt_ctl")};
}

std::string SampleEvents::names() const {
  std::string text;
  for (const auto& event : events) {
    if (!text.empty()) text += " and ";
    text += event.name;
  }
  return text;
}

SampleEvents choose_sample_events(const SampleFacts& facts, std::string_view pmu) {
  if (!facts.paranoid) return none("this kernel has no perf events");
  if (!facts.core_pmu && facts.ibs_op_type < 0 && facts.virtual_machine)
    return none("this virtual machine has no performance counters",
                "run on the host, or let the hypervisor pass them on; userfaultfd counts without");
  if (facts.vendor == "GenuineIntel") return intel(facts, pmu);
  if (facts.vendor == "AuthenticAMD") return amd(facts);
  return none("only Intel's PEBS and AMD's IBS are known here");
}

SampleEvents refused_sample_events(const SampleFacts& facts, int error) {
  // What perf_event_paranoid may be. Older kernels' IBS sees every process.
  const int most = facts.vendor == "AuthenticAMD" ? 0 : 2;
  const auto refused = fmt::format("perf_event_open: {}", std::strerror(error));
  switch (error) {
    case EACCES:
    case EPERM:
    case ENOSYS:
      if (error != ENOSYS && facts.paranoid.value_or(0) > most)
        return none(
            fmt::format("kernel.perf_event_paranoid is {}", *facts.paranoid),
            fmt::format("sysctl kernel.perf_event_paranoid={}, or give the process CAP_PERFMON",
                        most));
      return none(refused, "in a container allow it in the seccomp profile, or add CAP_PERFMON");
    case EBUSY:
      return none(refused, "another program holds the counters: end it");
    case ENOMEM:
      return none(refused,
                  "raise the limit of locked memory (ulimit -l) or kernel.perf_event_mlock_kb");
    case EMFILE:
      return none(refused, "raise the limit of open files (ulimit -n)");
    default:
      return none(refused);
  }
}

}  // namespace sentinel
