// Makes a scenario's variants, one for each value of the varied knob.
#include "planning/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/form.h"
#include "cli/inputs.h"
#include "planning/sweep_values.h"
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

double vary_fast(Scenario& s, const std::string& value) {
  s.plan.fast_bytes = budget_bytes(value, s.profile, s.machine);
  return static_cast<double>(s.plan.fast_bytes);
}

// A capacity of 0 would be no limit: a machine without host memory has no such tier.
void remove_tier(Machine& machine, const std::string& name) {
  tier(machine, name);
  if (machine.tiers.size() < 3)
    throw UsageError(fmt::format("machine {} has no other slower tier", machine.name));
  std::erase_if(machine.tiers, [&](const TierSpec& t) { return t.name == name; });
  std::erase_if(machine.links, [&](const LinkSpec& link) {
    const bool port = link.tiers.size() == 1;
    return std::ranges::find(link.tiers, name) != link.tiers.end() &&
           (port || link.tiers.size() == 2);
  });
  for (auto& link : machine.links) std::erase(link.tiers, name);
}

double vary_host(Scenario& s, const std::string& value) {
  const auto bytes = parse_bytes(value);
  if (bytes == 0)
    remove_tier(s.machine, "host");
  else
    tier(s.machine, "host").capacity = bytes;
  return static_cast<double>(bytes);
}

double vary_ssd(Scenario& s, const std::string& value) {
  auto& ssd = tier(s.machine, "ssd");
  ssd.read_bw = ssd.write_bw = sim::parse_bandwidth(value);
  if (ssd.read_bw == 0) throw UsageError("a bandwidth of 0 would be no limit");
  for (auto& link : s.machine.links)  // the drive's own port would else stay as it was
    if (link.tiers == std::vector<std::string>{"ssd"}) link.bw = ssd.read_bw;
  return ssd.read_bw;
}

double vary_interval(Scenario& s, const std::string& value) {
  s.plan.max_interval_layers = static_cast<std::uint32_t>(parse_bytes(value));
  return s.plan.max_interval_layers;
}
double vary_look_ahead(Scenario& s, const std::string& value) {
  s.plan.look_ahead = static_cast<std::uint32_t>(parse_bytes(value));
  return s.plan.look_ahead;
}

struct Knob {
  std::string_view name;
  double (*turn)(Scenario&, const std::string& value);  // answers the value as a number
  bool whole = false;
};
constexpr Knob kKnobs[] = {{"fast", vary_fast},
                           {"host", vary_host},
                           {"ssd-bw", vary_ssd},
                           {"interval", vary_interval, true},
                           {"look-ahead", vary_look_ahead, true}};

Variant varied(const Scenario& scenario, const Knob& knob, const std::string& value) {
  Variant variant{fmt::format("{}={}", knob.name, value), scenario};
  try {
    variant.at = knob.turn(variant.scenario, value);
  } catch (const std::runtime_error& error) {
    throw UsageError(fmt::format("--sweep {}: {}", variant.name, error.what()));
  }
  return variant;
}

}  // namespace

std::string swept(const std::string& sweep) { return sweep.substr(0, sweep.find('=')); }

std::vector<Variant> variants_of(const Scenario& scenario, const std::string& sweep) {
  if (sweep.empty()) return {{"", scenario}};
  const auto equals = std::min(sweep.find('='), sweep.size());
  const auto* knob = std::find_if(std::begin(kKnobs), std::end(kKnobs),
                                  [&](const Knob& k) { return k.name == sweep.substr(0, equals); });
  if (knob == std::end(kKnobs) || equals + 1 >= sweep.size())
    throw UsageError(fmt::format(
        "--sweep {}: write fast=, host=, ssd-bw=, interval= or look-ahead= and values, as "
        "fast=10%,20% or fast=10%..100%",
        sweep));
  std::vector<Variant> variants;
  for (const auto& value : sweep_values(sweep.substr(equals + 1), knob->whole))
    variants.push_back(varied(scenario, *knob, value));
  return variants;
}

}  // namespace sentinel::cli
