#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds what needs one, tests it, and measures it. Takes what a bare
# CUDA image has (CMake, ninja, a C++20 compiler); GoogleTest, {fmt} and liburing come from build/gpu-travel
# (pack.sh, on a machine that has them) or else from the system. Nothing of it changes the device.
#
#   tests/gpu/run.sh [FOLDER]     what was measured goes to FOLDER too, with device and driver
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
results=${1:-${OUT:-$root/build/gpu-results}}
travel=$root/build/gpu-travel
options=()
[ -d "$travel" ] && options=("-DSENTINEL_TRAVEL=$travel")
mkdir -p "$results"
cmake -S "$root/tests/gpu" -B "$root/build/gpu" -G Ninja "${options[@]}" >"$results/build.log"
ninja -C "$root/build/gpu" >>"$results/build.log"
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi >/dev/null 2>&1; then
  echo "no NVIDIA GPU here: only what needs none is tested" >&2
  exec "$root/build/gpu/pool_engine_test"
fi
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free --format=csv | tee "$results/device.csv"
"$root/build/gpu/pool_engine_test" --gtest_brief=1
"$root/build/gpu/gpu_device_test" --gtest_brief=1
if command -v compute-sanitizer >/dev/null; then
  # But for the test that has the driver refuse a call, which would be counted. memcheck: what copies and the
  # kernel of touch_kernel.h reach. racecheck looks for hazards in kernels' shared memory, of which that one
  # has none: it finds nothing of ours. The order of copies is held by what the tests compare.
  for tool in memcheck racecheck; do
    compute-sanitizer --tool $tool --error-exitcode 1 "$root/build/gpu/gpu_device_test" --gtest_brief=1 \
      --gtest_filter=-*HasItsName | tee "$results/$tool.txt"
  done
else
  echo "compute-sanitizer is not here: no memory check" >&2
fi
"$root/build/gpu/gpu_movement" | tee "$results/movement.txt"

# Training, with what remains of nine minutes.
python=${SENTINEL_GPU_PYTHON:-python3}
if ! "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  echo "$python has no PyTorch with CUDA (SENTINEL_GPU_PYTHON names another): nothing is trained" >&2
  exit
fi
sentinel=()
if LD_LIBRARY_PATH=$travel/runtime/needs "$travel/runtime/bin/sentinel" --version >/dev/null 2>&1; then
  export LD_LIBRARY_PATH=$travel/runtime/needs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  sentinel=(--sentinel "$travel/runtime/bin/sentinel")
elif [ -x "$root/build/bin/sentinel" ] && "$root/build/bin/sentinel" --version >/dev/null 2>&1; then
  sentinel=(--sentinel "$root/build/bin/sentinel")
else
  echo "no sentinel that runs here ($travel/runtime, build/bin): the others are measured alone" >&2
fi
"$python" "$root/tests/gpu/compare.py" "${sentinel[@]}" --seconds $((510 - SECONDS)) \
  --json "$results/training.json" | tee "$results/training.txt"
