#!/usr/bin/env bash
# build.sh [PYTHON | TORCH.whl]...
# Makes the wheel in dist/, with an adaptor for the framework of each Python, and of each wheel of PyTorch, that is named.
# Of such a wheel only headers and two libraries are unpacked; nothing of it is run. The Debian packages of
# tools/packages.txt must be there, and pip has to reach its index for the parts that pyproject.toml names.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${SENTINEL_PYTHON:-/usr/bin/python3}
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
prebuilt=()
for place in "$@"; do
  case $place in
    *.whl)
      folder=$unpacked/$(basename "$place" .whl)
      "$python" - "$place" "$folder" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("torch/include/") or name in (
        "torch/version.py", "torch/lib/libc10.so", "torch/lib/libtorch_cpu.so")])
PYTHON
      prebuilt+=("$folder/torch") ;;
    *) prebuilt+=("$place") ;;
  esac
done
cd "$root"
export SENTINEL_PREBUILT
SENTINEL_PREBUILT=$(IFS=';'; echo "${prebuilt[*]:-}")
"$python" -m pip wheel --no-deps -w dist .
wheel=$(find dist -maxdepth 1 -name '*.whl' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-)
ls -l "$wheel"
names=$("$python" -m zipfile -l "$wheel")
for solver in libClp libCbcSolver; do
  if [[ $names != *"/solvers/$solver"* ]]; then
    echo "WARNING: $wheel comes without $solver: plans by integer programs need the system's" >&2
  fi
done
