// One thing varied: "fast=10%..100%", "host=0,64G,128G", "ssd-bw=3.2..25.6GB/s", "interval=1..16",
// "look-ahead=8,32" (kernels that deepum predicts).
#pragma once

#include <string>
#include <vector>

#include "planning/simulation.h"

namespace sentinel::cli {

struct Variant {
  std::string name;  // "fast=20%"; empty where nothing is varied
  Scenario scenario;
  double at = 0;  // the value: bytes, bytes per second or layers
};

// "fast" of "fast=10%,20%"; empty for an empty text.
std::string swept(const std::string& sweep);

// Just the scenario for an empty text. Throws UsageError.
std::vector<Variant> variants_of(const Scenario&, const std::string& sweep);

}  // namespace sentinel::cli
