#!/usr/bin/env bash
# steps.py, of what build.sh has built, with a command of Sentinel that runs here: what travelled along (pack.sh) or the
# build's own.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${SENTINEL_BUILD:-$root/build}
travel=$build/gpu-travel
sentinel=()
reasons=
mkdir -p "$build/gpu"
travelled=$build/gpu/sentinel # which alone needs the libraries that travel along, with what it starts
# shellcheck disable=SC2016  # the other script expands it
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
exec python3 "$root/tests/gpu/steps.py" --build "$build/gpu" --results "$build/gpu-results" "${sentinel[@]}" \
  --python "${SENTINEL_GPU_PYTHON:-python3}" "$@"
