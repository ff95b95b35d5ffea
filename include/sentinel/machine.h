// SPDX-License-Identifier: Apache-2.0
// A machine description: tiers, links, fault cost. Plain data, parsed from TOML in sim/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sentinel/ids.h"

namespace sentinel {

struct TierSpec {
  std::string name;                  // "dram", "hbm", "host", "ssd"
  std::uint64_t capacity = 0;        // bytes; 0 = unlimited
  double read_bw = 0, write_bw = 0;  // bytes per second
  double latency_us = 0;
  bool byte_addressable = false;  // an op can use a tensor in place there
};

// A transfer between two tiers uses every link that joins them: a link that names one tier is that
// tier's port, used by all its traffic; one that names more is used by transfers between any two of
// them. `bw` is of each way. Both ways of a half-duplex link share its time: there `bw` is of both
// together, and of a port in bytes of the way in which its tier is faster; a byte the other way
// takes as much more as the tier is slower there (than the link, if that is the slower). So a drive
// that writes at 6 GB/s and reads at 3, and does one thing at a time, has a port of 6 GB/s, and
// moves 2 GB/s each way at once.
struct LinkSpec {
  std::string name;
  double bw = 0;                   // bytes per second
  std::vector<std::string> tiers;  // the tiers whose traffic crosses it
  bool half_duplex = false;
};

// What `sentinel trace` estimates op times with. Peak rates as the maker states them, in floating
// point operations per second; 0 where nobody has described them.
struct ComputeSpec {
  double flops = 0;       // matrix products in 32 bits
  double conv_flops = 0;  // convolutions in 32 bits, which PyTorch lets cuDNN compute in TF32
  double half_flops = 0;  // both in 16 bits
  double op_us = 0;       // to start an op
};

struct Machine {
  std::string name, source;     // source: publication or "measured"
  std::vector<TierSpec> tiers;  // fastest first; tiers[0] is the fast tier
  std::vector<LinkSpec> links;  // may be empty: the tiers' own bandwidths limit
  double fault_us = 0;          // one demand-fault batch
  std::uint64_t fault_batch_bytes = 4096;
  std::uint64_t granule_bytes =
      4096;  // unit in which space is held and moved (2 MiB on the SSD tier)
  // What comes into fast memory gives up its copy below, so that leaving it is written again,
  // changed or not: exclusive tiers, as those of a runtime that does not track what is dirty.
  bool exclusive = false;
  // Seconds of computation lost for each GB moved, in or out: LogGOPS's O, of a runtime whose
  // movers share the processors with the program (Hoefler et al., HPDC 2010).
  double cpu_s_per_gb = 0;
  ComputeSpec compute;
};

}  // namespace sentinel
