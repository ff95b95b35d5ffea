// One thing varied: "fast=10%,20%", "host=64G,128G", "ssd-bw=1GB/s,3.2GB/s", "interval=1,4,16",
// "look-ahead=8,32" (kernels that deepum predicts).
#pragma once

#include <string>
#include <vector>

#include "simulation.h"

namespace sentinel::cli {

struct Variant {
  std::string name;  // "fast=20%"; empty where nothing is varied
  Scenario scenario;
};

// Just the scenario for an empty text. Throws UsageError.
std::vector<Variant> variants_of(const Scenario&, const std::string& sweep);

}  // namespace sentinel::cli
