#!/usr/bin/env bash
# Builds what a machine with a GPU needs (SENTINEL_BUILD, build/ if not given): the device's tests, with what a bare CUDA
# image has (CMake, ninja, a C++20 compiler), and the adaptor for the PyTorch that is there (SENTINEL_GPU_PYTHON, python3
# if not given), before anything is timed. GoogleTest, {fmt} and liburing come from gpu-travel in the build (pack.sh, on a
# machine that has them) or else from the system. What is built is not built again.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${SENTINEL_BUILD:-$root/build}
travel=$build/gpu-travel
python=${SENTINEL_GPU_PYTHON:-python3}
options=()
[ -d "$travel" ] && options=("-DSENTINEL_TRAVEL=$travel")
mkdir -p "$build"
if [ -d "$travel/runtime" ]; then
  packed=$(cat "$travel/runtime/sources" 2>/dev/null || true)
  here=$(python3 "$root/tests/gpu/results.py")
  if [ "$packed" != "$here" ]; then
    echo "failed: what $travel/runtime holds is built of other sources (${packed:-unknown}) than those here ($here);" \
      "build these and call tests/gpu/pack.sh where that was done, or remove $travel/runtime" >&2
    exit 1
  fi
fi

adaptor() {
  local home=$build/lib/sentinel
  [ -d "$travel/runtime" ] && home=$travel/runtime/lib/sentinel
  if [ -d "$home" ] && "$python" -c "import torch" >/dev/null 2>&1; then
    SENTINEL_FRAMEWORK=none "$python" "$home/python/sentinel/_torch.py" "$home"
  fi
}
tests() {
  cmake -S "$root/tests/gpu" -B "$build/gpu" -G Ninja ${options[@]+"${options[@]}"} && ninja -C "$build/gpu"
}
failed() {
  tail -n 40 "$build/$1.log" >&2
  echo "failed: the build ($build/$1.log)" >&2
  exit 1
}
adaptor >"$build/gpu-adaptor.log" 2>&1 &
tests >"$build/gpu-build.log" 2>&1 || failed gpu-build
wait $! || failed gpu-adaptor
