#include "sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "form.h"
#include "inputs.h"
#include "sentinel/error.h"
#include "sim/machine_file.h"

namespace sentinel::cli {
namespace {

TierSpec& tier(Machine& machine, std::string_view name) {
  const auto found = std::find_if(machine.tiers.begin(), machine.tiers.end(),
                                  [&](const TierSpec& t) { return t.name == name; });
  if (found == machine.tiers.end())
    throw UsageError(fmt::format("machine {} has no tier \"{}\" to vary", machine.name, name));
  return *found;
}

void vary_fast(Scenario& s, const std::string& value) {
  s.plan.fast_bytes = budget_bytes(value, s.profile, s.machine);
}
void vary_host(Scenario& s, const std::string& value) {
  tier(s.machine, "host").capacity = parse_bytes(value);
}
void vary_ssd(Scenario& s, const std::string& value) {
  auto& ssd = tier(s.machine, "ssd");
  ssd.read_bw = ssd.write_bw = sim::parse_bandwidth(value);
  for (auto& link : s.machine.links)  // the drive's own port would else stay as it was
    if (link.tiers == std::vector<std::string>{"ssd"}) link.bw = ssd.read_bw;
}
void vary_interval(Scenario& s, const std::string& value) {
  s.plan.max_interval_layers = static_cast<std::uint32_t>(parse_bytes(value));
}
void vary_look_ahead(Scenario& s, const std::string& value) {
  s.plan.look_ahead = static_cast<std::uint32_t>(parse_bytes(value));
}

struct Knob {
  std::string_view name;
  void (*turn)(Scenario&, const std::string& value);
};
constexpr Knob kKnobs[] = {{"fast", vary_fast},
                           {"host", vary_host},
                           {"ssd-bw", vary_ssd},
                           {"interval", vary_interval},
                           {"look-ahead", vary_look_ahead}};

Variant varied(const Scenario& scenario, const Knob& knob, const std::string& value) {
  Variant variant{fmt::format("{}={}", knob.name, value), scenario};
  try {
    knob.turn(variant.scenario, value);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--sweep {}: {}", variant.name, error.what()));
  }
  return variant;
}

}  // namespace

std::vector<Variant> variants_of(const Scenario& scenario, const std::string& sweep) {
  if (sweep.empty()) return {{"", scenario}};
  const auto equals = std::min(sweep.find('='), sweep.size());
  const auto* knob = std::find_if(std::begin(kKnobs), std::end(kKnobs),
                                  [&](const Knob& k) { return k.name == sweep.substr(0, equals); });
  if (knob == std::end(kKnobs) || equals + 1 >= sweep.size())
    throw UsageError(fmt::format(
        "--sweep {}: write fast=, host=, ssd-bw=, interval= or look-ahead= and values, as "
        "fast=10%,20%",
        sweep));
  std::vector<Variant> variants;
  std::istringstream values(sweep.substr(equals + 1));
  for (std::string value; std::getline(values, value, ',');)
    variants.push_back(varied(scenario, *knob, value));
  return variants;
}

}  // namespace sentinel::cli
