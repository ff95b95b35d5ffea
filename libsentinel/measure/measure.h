// Measures the machine that a plan needs to know: the slow tier's bandwidth each way alone and
// both at once, through the engine's own executors, frames and queue depth.
#pragma once

#include <functional>
#include <string>

#include "engine/gpu/cuda_driver.h"
#include "engine/gpu/store/host_store.h"
#include "engine/io/executors.h"
#include "options/options.h"
#include "sentinel/machine.h"

namespace sentinel {

struct TierSpeed {
  double write_bw = 0, read_bw = 0;                    // bytes per second, one direction at a time
  double exchange_write_bw = 0, exchange_read_bw = 0;  // both at once
  double latency_us = 0;                               // of one frame's read, alone
};

// Writes and reads about `bytes`, and as much as fills the queue twice at least, in `directory`.
// Throws Error.
TierSpeed measure_slow_tier(const std::string& directory, std::uint64_t bytes,
                            const ExecutorOptions&, bool allow_memory);
// Of the drive's port, half duplex (LinkSpec): it does one thing at a time, or as much more as was
// seen while it did both.
double port_bw(const TierSpeed&);
double measure_memory_bw();  // copying, bytes per second
// The driver of `options.gpu.device`, with memory from pools or managed. Throws Error.
std::unique_ptr<gpu::Driver> open_gpu(const SessionOptions&);
// The options with a way to a GPU's memory settled: what a source that counts needs. Where they
// leave it open ("auto"), that of the plan, else the one that `known` tells to move more; managed
// memory only where the tensors of a stored profile have room in it several times over, for it is
// refused beyond what the device has free. Throws Error.
using KnownMachine = std::function<Machine(const SessionOptions&)>;
SessionOptions with_gpu_memory(SessionOptions, const KnownMachine& known);
// A GPU's memory over the host's, by the driver's copies, in granules of so many bytes. Throws
// Error.
Machine measure_gpu(gpu::Driver&, const std::string& name,
                    std::uint64_t granule_bytes = kGpuGranule);

// The machine "local", with frames as its granule. Throws Error.
Machine measure_machine(const std::string& directory, bool allow_memory);
// That of the tiers which the options name.
Machine measure_machine(const SessionOptions&);
// With --host-memory or --node-memory: what tensors may take of the host or the slow node, and
// below it, where the machine has no third tier, the slow tier's drive as it was measured or is
// now. Throws Error.
void put_drive_below(Machine&, const SessionOptions&);
SessionOptions of_drive(SessionOptions);  // the drive's alone, of those of two tiers over it
gpu::HostOptions host_options(const SessionOptions&);
// Whether it has been, and lies where sim/machine_file.h says; another drive is another machine.
bool is_measured(const SessionOptions&);
// As it was measured, or is now. Throws Error.
Machine known_machine(const SessionOptions&);

}  // namespace sentinel
