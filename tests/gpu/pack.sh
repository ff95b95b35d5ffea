#!/usr/bin/env bash
# Gathers what run.sh needs where nothing can be installed: GoogleTest's sources and {fmt}'s headers,
# from Debian's googletest and libfmt-dev, into FOLDER (build/gpu-travel if not given).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:-$root/build/gpu-travel}
for part in /usr/src/googletest /usr/include/fmt; do
  if [ ! -d "$part" ]; then
    echo "$part is missing; install googletest and libfmt-dev" >&2
    exit 1
  fi
done
rm -rf "$folder"
mkdir -p "$folder"
cp -r /usr/src/googletest /usr/include/fmt "$folder/"
echo "$folder"
