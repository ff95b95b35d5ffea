// Memory snapshots of PyTorch's CUDA allocator, as torch.cuda.memory._dump_snapshot() writes them
// (pickle), or the same dictionary as JSON; either may be packed by gzip.
#pragma once

#include <string>

#include "sentinel/profile.h"

namespace sentinel {

// The whole recording is taken as one step, of the device that allocated most; record one. Throws
// Error that begins with the file.
//
// A snapshot tells sizes and lifetimes exactly, and not which kernel uses what:
//  - An op is a run of allocations from one place in the program, with the frees that follow. It
//    writes what it allocates and reads, at the latest, what it frees. Uses in between are not
//    seen: tensors seem idle that are not, so simulated steps are rather too short.
//  - Op times are the times between events; 0 in snapshots of PyTorch before 2.1, which have none.
//  - A free ends a tensor when it is requested; where only completions are recorded, then.
//  - What was allocated before the recording and is still there is a global that no op uses.
//  - An op's name is the innermost line of Python, its layer the innermost that is not PyTorch's.
//    Where only some events have Python frames, those without are the backward pass, which runs on
//    a thread of its own.
//  - ProfileMeta::incomplete_reason says where the recording has gaps: frees that it lacks, events
//    that it dropped, times that it does not tell.
Profile read_pytorch_snapshot(const std::string& path);

}  // namespace sentinel
