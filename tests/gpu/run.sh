#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds what needs one, tests it, and measures it. Takes what a bare
# CUDA image has (CMake, ninja, a C++20 compiler); GoogleTest, {fmt} and liburing come from build/gpu-travel
# (pack.sh, on a machine that has them) or else from the system. Nothing of it changes the device.
#
#   tests/gpu/run.sh [FOLDER] [OPTIONS of compare.py...]     what was measured goes to FOLDER too
#   SENTINEL_GPU_ONLY=training tests/gpu/run.sh OUT --models GPT-2,ViT --shares 20     of the steps below, that one
#
# A step that fails does not keep the next from being run; what failed is told at the end, with status 1.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
results=${OUT:-$root/build/gpu-results}
if [ $# -gt 0 ] && [[ $1 != --* ]]; then
  results=$1
  shift
fi
travel=$root/build/gpu-travel
options=()
[ -d "$travel" ] && options=("-DSENTINEL_TRAVEL=$travel")
mkdir -p "$results"

failed=()
# Prints what the command does, and keeps it in the results.
step() { # NAME COMMAND...
  local name=$1
  shift
  [ -n "${SENTINEL_GPU_ONLY:-}" ] && [ "$SENTINEL_GPU_ONLY" != "$name" ] && return
  "$@" | tee "$results/$name.txt" || failed+=("$name")
}
tested() { # NAME COMMAND...: one that hangs is ended
  step "$1" timeout 180 "${@:2}"
}

build() {
  cmake -S "$root/tests/gpu" -B "$root/build/gpu" -G Ninja "${options[@]}" && ninja -C "$root/build/gpu"
}
if ! build >"$results/build.log" 2>&1; then
  tail -n 40 "$results/build.log" >&2
  echo "failed: the build ($results/build.log)" >&2
  exit 1
fi
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi >/dev/null 2>&1; then
  echo "no NVIDIA GPU here: only what needs none is tested" >&2
  exec "$root/build/gpu/pool_engine_test"
fi
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free --format=csv | tee "$results/device.csv"
tested pool_engine_test "$root/build/gpu/pool_engine_test" --gtest_brief=1
tested gpu_device_test "$root/build/gpu/gpu_device_test" --gtest_brief=1
if command -v compute-sanitizer >/dev/null; then
  # But for the tests in which the driver refuses a call, or NVIDIA's own libraries have it refuse some, which would
  # be counted. memcheck: what copies and the kernel of touch_kernel.h reach. racecheck looks for hazards in
  # kernels' shared memory, of which that one has none: it finds nothing of ours. The order of copies is held by what
  # the tests compare.
  for tool in memcheck racecheck; do
    tested $tool compute-sanitizer --tool $tool --error-exitcode 1 "$root/build/gpu/gpu_device_test" \
      --gtest_brief=1 --gtest_filter='-*HasItsName:*OwnFile*:*Cupti*:*PatchedKernel*'
  done
else
  echo "compute-sanitizer is not here: no memory check" >&2
fi
tested movement "$root/build/gpu/gpu_movement"

# Training, with what remains of nine minutes.
python=${SENTINEL_GPU_PYTHON:-python3}
sentinel=()
reasons=
travelled=$root/build/gpu/sentinel # which alone needs the libraries that travel along, with what it starts
printf '#!/usr/bin/env bash\nLD_LIBRARY_PATH=%q${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec %q "$@"\n' \
  "$travel/runtime/needs" "$travel/runtime/bin/sentinel" >"$travelled"
chmod +x "$travelled"
for command in "$travelled" "$root/build/bin/sentinel"; do
  if told=$("$command" --version 2>&1); then
    sentinel=(--sentinel "$command")
    break
  fi
  reasons+=$'\n  '${told##*$'\n'}
done
if ! told=$("$python" -c 'import torch; assert torch.cuda.is_available(), "there is no device"' 2>&1); then
  failed+=("training: $python has no PyTorch with CUDA (SENTINEL_GPU_PYTHON names another): ${told##*$'\n'}")
else
  [ ${#sentinel[@]} -eq 0 ] && failed+=("with Sentinel: no command runs here; the others were measured$reasons")
  step training "$python" "$root/tests/gpu/compare.py" "${sentinel[@]}" --seconds $((510 - SECONDS)) \
    --json "$results/training.json" "$@"
fi
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
