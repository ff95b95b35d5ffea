#!/usr/bin/env bash
# Gathers what build.sh needs where nothing can be installed: GoogleTest's sources, {fmt}'s and xxHash's headers and
# liburing, from Debian's googletest, libfmt-dev, liburing-dev and libxxhash-dev; and, of the build that is here
# (SENTINEL_BUILD, build/ if not given),
# brought up to date, the command, the library, what both are linked with, and the hash of their sources, without which
# build.sh takes none of it. Into FOLDER (gpu-travel in the build if not given, where build.sh looks for it).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${SENTINEL_BUILD:-$root/build}
folder=${1:-$build/gpu-travel}
uring=/usr/lib/$(uname -m)-linux-gnu/liburing.a
for part in /usr/src/googletest /usr/include/fmt /usr/include/liburing.h "$uring" /usr/include/xxhash.h; do
  if [ ! -e "$part" ]; then
    echo "$part is missing; install googletest, libfmt-dev, liburing-dev and libxxhash-dev" >&2
    exit 1
  fi
done
if [ -x "$build/bin/sentinel" ]; then
  travels=(bin/sentinel lib/libsentinel.so)
  [ -e "$build/lib/sentinel/torch.stamp" ] && travels+=(lib/sentinel/torch.stamp)
  ninja -C "$build" "${travels[@]}" >&2
fi
rm -rf "$folder"
mkdir -p "$folder"
cp -r /usr/src/googletest /usr/include/{fmt,liburing,liburing.h} /usr/include/xxh*.h "$uring" "$folder/"
if [ -x "$build/bin/sentinel" ]; then
  mkdir -p "$folder/runtime/bin" "$folder/runtime/lib" "$folder/runtime/needs"
  strip -o "$folder/runtime/bin/sentinel" "$build/bin/sentinel"
  strip -o "$folder/runtime/lib/libsentinel.so" "$build/lib/libsentinel.so"
  cp -rL "$build/lib/sentinel" "$folder/runtime/lib/"  # a linked one too: some of it is removed below
  python3 "$root/tests/gpu/results.py" >"$folder/runtime/sources"
  rm -rf "$folder/runtime/lib/sentinel/adaptors"  # of the PyTorch that is here
  # glibc and the compiler's libraries are the machine's own: both have to be as new as here.
  { ldd "$build/bin/sentinel"; ldd "$build/lib/libsentinel.so"; } |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -Ev '/lib(c|m|stdc\+\+|gcc_s)\.so' | xargs -I{} cp -L {} "$folder/runtime/needs/"
else
  echo "nothing is built here: only the engine will be tested, not training" >&2
fi
echo "$folder"
