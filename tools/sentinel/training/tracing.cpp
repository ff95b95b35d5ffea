// What the traced Python is told: where the trace goes, and the rates of a machine.
#include "training/tracing.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "sentinel/error.h"
#include "sim/machine_file.h"
#include "training/launch.h"

namespace sentinel::cli {
namespace {

// What kernels reach of the peak rates: the rest goes into shapes that fill no processor, and into
// memory that is read more than once.
constexpr double kOfFlops = 0.7, kOfBandwidth = 0.8;

constexpr const char *kMode = "SENTINEL_MODE", *kOutput = "SENTINEL_TRACE",
                     *kQuiet = "SENTINEL_QUIET", *kMachine = "SENTINEL_TRACE_MACHINE",
                     *kRates = "SENTINEL_TRACE_RATES";

bool is_measured(const std::string& machine) { return machine == "local"; }

std::string rates_of(const Machine& machine) {
  const auto& compute = machine.compute;
  const auto bandwidth = machine.tiers.front().read_bw;
  if (compute.flops <= 0 || bandwidth <= 0)
    throw Error(fmt::format(
        "the description of machine {} has no rates to estimate op times with: add \"flops\", "
        "and \"read_bw\" of its first tier",
        machine.name));
  const auto or_flops = [&](double rate) { return kOfFlops * (rate > 0 ? rate : compute.flops); };
  return nlohmann::json{{"flops", or_flops(compute.flops)},
                        {"conv_flops", or_flops(compute.conv_flops)},
                        {"half_flops", or_flops(compute.half_flops)},
                        {"bandwidth", kOfBandwidth * bandwidth},
                        {"op_us", compute.op_us}}
      .dump();
}

}  // namespace

TraceEnvironment::TraceEnvironment(const std::filesystem::path& output, const std::string& name,
                                   bool tells)
    : quiet_(!tells && std::getenv(kQuiet) == nullptr) {
  std::string rates, machine = name;
  if (!is_measured(name)) {
    const auto described = sim::find_machine(name);
    rates = rates_of(described);
    machine = described.name;
  }
  if (const char* mode = std::getenv(kMode)) mode_ = mode;
  enter_places();
  setenv(kMode, "trace", 1);
  setenv(kOutput, std::filesystem::absolute(output).c_str(), 1);
  setenv(kMachine, machine.c_str(), 1);
  if (quiet_) setenv(kQuiet, "1", 1);
  rates.empty() ? unsetenv(kRates) : setenv(kRates, rates.c_str(), 1);
}

TraceEnvironment::~TraceEnvironment() {
  mode_.empty() ? unsetenv(kMode) : setenv(kMode, mode_.c_str(), 1);
  if (quiet_) unsetenv(kQuiet);
  for (const char* variable : {kOutput, kMachine, kRates}) unsetenv(variable);
}

}  // namespace sentinel::cli
