// Where tests find what they read. These paths differ from clone to clone: one source alone knows
// them, so that ccache serves all others to a second clone.
#pragma once

namespace sentinel::test {

extern const char* const kProject;  // its folder
extern const char* const kTraces;  // published ones, where somebody has put them beside the project
extern const char* const kFakeCuda;       // a GPU's driver as of CUDA 12.2
extern const char* const kFakeCuda11;     // one before it
extern const char* const kFakeCudaPools;  // one that can place no managed memory

}  // namespace sentinel::test
