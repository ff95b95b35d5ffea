// SPDX-License-Identifier: Apache-2.0
// The profile: everything known about one training step. Produced by capture, stored by trace,
// read by plan, sim, runtime and report. Plain data; no invariant beyond those stated per field.
//
// Glossary: a *tensor* is a storage (views alias it); an *op* is the outermost
// framework op that is not a mere composite; a *layer* is a contiguous run of ops;
// an *opening* is one counted page access; *hotness* is openings per page (mean).
// All sizes are bytes, all times microseconds unless the name says otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sentinel/ids.h"

namespace sentinel {

enum class Phase : std::uint8_t { forward, backward, optimizer };
enum class TensorKind : std::uint8_t { global, intermediate, workspace };

struct Layer {
  std::string name;  // module path, scope, or the op that began it
  Phase phase = Phase::forward;
  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Op {
  std::string name;
  LayerId layer;  // non-decreasing over ops
  Phase phase = Phase::forward;
  double us = 0;  // compute time, stalls and counting overhead excluded as far as known
  std::vector<TensorId> in, out;  // sorted, unique; a tensor in both is updated in place
  std::string parent;             // module or autograd node, may be empty
  friend bool operator==(const Op&, const Op&) = default;
};

struct Tensor {
  std::string name;  // "layer/op:ordinal" or a parameter's name; unique is not promised
  std::uint64_t bytes = 0;
  TensorKind kind = TensorKind::intermediate;
  // The op during (or just before) which it was allocated / freed. Absent: it existed before the
  // step began / outlives it. Both absent: persistent.
  std::optional<OpId> alloc_op, free_op;
  std::uint32_t ordinal = 0;            // of its allocation among those attributed to alloc_op
  std::optional<std::uint64_t> offset;  // persistent tensors: offset in the arena (bytes)
  std::uint32_t sample_stride = 1;      // one page in this many was tracked (stratified); 1 = all
  bool foreign = false;                 // memory not handed out by Sentinel; never moved
  // Ordinals of later allocations of alloc_op that are this tensor again: each of as many bytes,
  // made when the one before had been freed. Rising.
  std::vector<std::uint32_t> again;
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// Page openings of one tensor during one op, already scaled up by the tensor's sample_stride. From
// the source "samples": loads and stores, as many as its samples stand for. From "kernel-hmm",
// "kernel-ats" and "cupti": a GPU's openings.
struct AccessCount {
  TensorId tensor;
  OpId op;
  std::uint64_t reads = 0, writes = 0;
  friend bool operator==(const AccessCount&, const AccessCount&) = default;
};

// Where a tensor would have lain had the framework's allocator placed it: while profiling each has
// pages of its own, so its allocations are replayed by best fit. Used for Observation 3.
struct NaturalPlacement {
  TensorId tensor;
  std::uint64_t address = 0;
  friend bool operator==(const NaturalPlacement&, const NaturalPlacement&) = default;
};

struct MachineRecord {                // the machine a profile was taken on
  std::string hostname, cpu, kernel;  // kernel: its release, "6.1.0-13-amd64"
  std::uint32_t cores = 0;
  std::uint64_t memory_bytes = 0, llc_bytes = 0;
  friend bool operator==(const MachineRecord&, const MachineRecord&) = default;
};

struct ProfileMeta {
  std::string
      source;  // "userfaultfd", "kernel", "samples", "ops", "synthetic", "trace", a GPU's (above)
  bool exact = false;                     // every opening was counted
  bool read_write = false;                // reads and writes told apart
  bool complete = false;                  // false: the recording ended early (crash, interrupt)
  std::string incomplete_reason;          // of a complete one: what was not counted, or empty
  std::string model, command, framework;  // framework: "torch 1.13.0", "c", …
  std::uint64_t batch = 0;
  std::uint32_t page_bytes = 4096;
  std::uint32_t window_pages = 0;  // W; 0 where the source has no window
  // Stated relative error of all counts together: two standard errors of the sample, and what the
  // source may have missed besides (SourceInfo::missed). 0 if exact.
  double sample_error = 0;
  double step_us = 0;           // a normal step's wall time (not the profiling step)
  double profiled_step_us = 0;  // the profiling step's wall time
  std::uint64_t signature = 0;  // of the step, for matching
  MachineRecord machine;
  std::string created;  // ISO 8601, UTC
  friend bool operator==(const ProfileMeta&, const ProfileMeta&) = default;
};

struct Profile {
  ProfileMeta meta;
  std::vector<Layer> layers;
  std::vector<Op> ops;
  std::vector<Tensor> tensors;
  std::vector<AccessCount> accesses;      // sorted by (tensor, op); empty where not counted
  std::vector<NaturalPlacement> natural;  // may be empty
  friend bool operator==(const Profile&, const Profile&) = default;
};

}  // namespace sentinel
