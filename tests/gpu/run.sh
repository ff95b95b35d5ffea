#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds what needs one, tests it, and measures it, all of it, call by call. Where there
# is little time first.sh and second.sh come before. Nothing of it changes the device.
#
#   tests/gpu/run.sh [FOLDER] [OPTIONS of steps.py and compare.py...]
#   tests/gpu/run.sh OUT --steps training --models GPT-2,ViT --shares 20     a part of it
#
# FOLDER gets results.json, and report.txt with what was printed. A call ends in under nine minutes; the next one goes on
# where it ended, until no line of the last table says `open`. A step that fails does not keep the next from being run;
# what failed is told at the end, with status 1. Other options that all rows have in common (--gpu-memory, --size,
# --batch, --limit ...) are other measurements: they lay aside what there is.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/device.sh"

"$gpu/build.sh" 2>&1 | tee -a "$results/report.txt" >&2
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi >/dev/null 2>&1; then
  echo "no NVIDIA GPU here: only what needs none is tested" >&2
  "$build/gpu/gpu_engine_test"
  exit
fi
"$gpu/steps.sh" --seconds $((520 - SECONDS)) ${options[@]+"${options[@]}"} | tee -a "$results/report.txt"
