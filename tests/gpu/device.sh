# shellcheck shell=bash
# What the scripts for a machine with a GPU share (run.sh, first.sh, second.sh); to be sourced with their arguments.
#
# Results lie in gpu-results in the build (SENTINEL_BUILD, build/ if not given), which outlives a call. FOLDER, the first
# argument if it is no option, or else $OUT, is given a copy however the script ends; where the build has none yet, the
# results.json there are gone on with. `options` has the other arguments.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
gpu=$root/tests/gpu
build=${SENTINEL_BUILD:-$root/build}
results=$build/gpu-results
folder=${OUT:-}
if [ $# -gt 0 ] && [[ $1 != --* ]]; then
  folder=$1
  shift
fi
options=("$@")
failed=()
mkdir -p "$results"
if [ -n "$folder" ]; then
  mkdir -p "$folder"
  [ -e "$results/results.json" ] || cp "$folder"/results*.json "$results" 2>/dev/null || true
fi

finish() {
  [ ${#failed[@]} -eq 0 ] || printf 'failed: %s\n' "${failed[*]}" | tee -a "$results/report.txt"
  [ -z "$folder" ] || cp -r "$results/." "$folder"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

# part SECONDS NAME COMMAND...: ends it after so long, tells how it went, and goes on.
part() {
  local seconds=$1 name=$2 status=0
  shift 2
  echo "== $name, $SECONDS s" | tee -a "$results/report.txt"
  timeout -k 8 "$seconds" "$@" 2>&1 | tee -a "$results/report.txt" || status=${PIPESTATUS[0]}
  [ "$status" -eq 0 ] || failed+=("$name ($status)")
}

# steps.py's, with the command that travelled along or the build's own.
steps() {
  local seconds=$1 name=$2
  shift 2
  part "$seconds" "$name" "$gpu/steps.sh" --seconds $((seconds - 10)) "$@" ${options[@]+"${options[@]}"}
}
