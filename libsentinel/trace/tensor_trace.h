// Tensor trace, version 1: the exchange format. One JSON object a line, optionally
// compressed by gzip: a header, the tensors, the ops in execution order.
//
// Fields written beyond the contract, which a reader may ignore: "page_bytes" in the header,
// "name" of a tensor, "layer_name" on the first op of a layer.
#pragma once

#include <iosfwd>
#include <string>

#include "sentinel/profile.h"

namespace sentinel {

// Throws Error that begins with "file:line".
//
// Ids may be any numbers; the profile's are dense, in the order of the file, and the original ones
// stay in the names ("t17", "layer 3"), from which an export takes them back. What the format
// leaves open is settled so:
//  - A global is persistent. A workspace or an intermediate lives from its first use to its last;
//    an intermediate read before any write lives from the step's start.
//  - One that no op uses takes no memory: it is marked foreign.
//  - Layers are the runs of equal "layer"; an op without one joins its predecessor's. Where no op
//    has one they are the runs of equal "op", and an op without that either is a layer by itself.
//  - "acc" does not tell reads from writes: its counts are stored as reads.
//  - The header's source becomes meta.command; meta.source is "trace".
Profile read_tensor_trace(const std::string& path);

void write_tensor_trace(const Profile& profile, std::ostream& out);
// Compressed where the name ends with ".gz".
void write_tensor_trace(const Profile& profile, const std::string& path);

}  // namespace sentinel
