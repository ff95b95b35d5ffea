#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds what needs one, tests it, and measures it. Takes what a bare CUDA image has
# (CMake, ninja, a C++20 compiler, Python); GoogleTest, {fmt} and liburing come from gpu-travel in the build
# (SENTINEL_BUILD, build/ if not given; pack.sh, on a machine that has them) or else from the system. Nothing of it
# changes the device.
#
#   tests/gpu/run.sh [FOLDER] [OPTIONS of steps.py and compare.py...]
#   tests/gpu/run.sh OUT --steps training --models GPT-2,ViT --shares 20     a part of it
#
# FOLDER gets two files: results.json, and report.txt with what was printed. A call ends in under nine minutes; the
# next one with the same FOLDER goes on where it ended, until no line of the last table says `open`. A step that fails
# does not keep the next from being run; what failed is told at the end, with status 1. Other options that all rows have
# in common (--gpu-memory, --size, --batch, --limit ...) are other measurements: they take a folder of their own, or lay
# aside what this one holds.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${SENTINEL_BUILD:-$root/build}
results=${OUT:-$build/gpu-results}
if [ $# -gt 0 ] && [[ $1 != --* ]]; then
  results=$1
  shift
fi
travel=$build/gpu-travel
options=()
[ -d "$travel" ] && options=("-DSENTINEL_TRAVEL=$travel")
mkdir -p "$results" "$build"
if [ -d "$travel/runtime" ]; then
  packed=$(cat "$travel/runtime/sources" 2>/dev/null || true)
  here=$(python3 "$root/tests/gpu/results.py")
  if [ "$packed" != "$here" ]; then
    echo "failed: what $travel/runtime holds is built of other sources (${packed:-unknown}) than those here ($here);" \
      "build these and call tests/gpu/pack.sh where that was done, or remove $travel/runtime" |
      tee "$results/report.txt" >&2
    exit 1
  fi
fi

build() {
  cmake -S "$root/tests/gpu" -B "$build/gpu" -G Ninja "${options[@]}" && ninja -C "$build/gpu"
}
if ! build >"$build/gpu-build.log" 2>&1; then
  tail -n 40 "$build/gpu-build.log" | tee "$results/report.txt" >&2
  echo "failed: the build ($build/gpu-build.log)" >&2
  exit 1
fi
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi >/dev/null 2>&1; then
  echo "no NVIDIA GPU here: only what needs none is tested" >&2
  exec "$build/gpu/pool_engine_test"
fi

sentinel=()
reasons=
travelled=$build/gpu/sentinel # which alone needs the libraries that travel along, with what it starts
printf '#!/usr/bin/env bash\nLD_LIBRARY_PATH=%q${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec %q "$@"\n' \
  "$travel/runtime/needs" "$travel/runtime/bin/sentinel" >"$travelled"
chmod +x "$travelled"
for command in "$travelled" "$build/bin/sentinel"; do
  if told=$("$command" --version 2>&1); then
    sentinel=(--sentinel "$command")
    break
  fi
  reasons+=$'\n  '${told##*$'\n'}
done
[ ${#sentinel[@]} -gt 0 ] || echo "no command of Sentinel runs here:$reasons" >&2
exec python3 "$root/tests/gpu/steps.py" --build "$build/gpu" --results "$results" "${sentinel[@]}" \
  --python "${SENTINEL_GPU_PYTHON:-python3}" --seconds $((520 - SECONDS)) "$@"
