#include "unit/places.h"

namespace sentinel::test {

const char* const kProject = SENTINEL_PROJECT;
const char* const kTraces = SENTINEL_PROJECT "/../shared/traces";
const char* const kFakeCuda = SENTINEL_FAKE_CUDA;
const char* const kFakeCuda11 = SENTINEL_FAKE_CUDA_11;
const char* const kFakeCudaPools = SENTINEL_FAKE_CUDA_POOLS;

}  // namespace sentinel::test
