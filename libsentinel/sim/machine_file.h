// Machine descriptions: TOML files, built in by name, or measured on this machine ("local").
//
//   name = "v100-16gb"                 fault_us = 45          # of one batch of demand faults
//   source = "where the figures are from"  fault_batch = "200KiB"  granule = "4KiB"
//   cpu_s_per_gb = 0.05                # computation lost to moving
//   [[tier]]   # fastest first          [[link]]   # optional
//   name = "hbm"  capacity = "16GiB"    name = "pcie"  bw = "15.754GB/s"
//   read_bw = "900GB/s"  write_bw = …   tiers = ["hbm", "host"]
//   latency_us = 1  byte_addressable = true   half_duplex = true   # bw of both ways together
//
// Sizes are strings with binary units or numbers of bytes; bandwidths strings in decimal MB/s or
// GB/s, or bytes per second. A capacity or bandwidth left out is no limit. Unknown keys are errors:
// a misspelt one would silently be no limit.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sentinel/machine.h"

namespace sentinel::sim {

struct BuiltinMachine {
  std::string_view name, toml;
};
std::span<const BuiltinMachine> builtin_machines();

// A built-in name, "local", or the path of a TOML file. Throws Error that names file and line.
Machine find_machine(const std::string& name_or_path);

Machine parse_machine(std::string_view toml, const std::string& where);
std::string machine_to_toml(const Machine&);

// This computer, as it was measured, in the user's cache (base/cache.h). Machines of other tiers of
// this computer have names of their own: "local-node0-node1".
// Throws Error where the cache keeps nothing. The process, and the programs that it starts, know
// the machine even then, by a variable of the environment. Not beside other threads.
void write_local_machine(const std::string& name, const Machine&);
bool has_local_machine(const std::string& name);
std::string local_machine_path(const std::string& name = "local");  // for people to read

double parse_bandwidth(std::string_view text);  // "3.2GB/s" -> bytes per second; throws Error

}  // namespace sentinel::sim
