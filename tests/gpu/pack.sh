#!/usr/bin/env bash
# Gathers what run.sh needs where nothing can be installed: GoogleTest's sources, {fmt}'s headers and
# liburing, from Debian's googletest, libfmt-dev and liburing-dev; and, of the build that is here, the command, the library
# and what both are linked with. Into FOLDER (build/gpu-travel if not given).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:-$root/build/gpu-travel}
uring=/usr/lib/$(uname -m)-linux-gnu/liburing.a
for part in /usr/src/googletest /usr/include/fmt /usr/include/liburing.h "$uring"; do
  if [ ! -e "$part" ]; then
    echo "$part is missing; install googletest, libfmt-dev and liburing-dev" >&2
    exit 1
  fi
done
rm -rf "$folder"
mkdir -p "$folder"
cp -r /usr/src/googletest /usr/include/{fmt,liburing,liburing.h} "$uring" "$folder/"
if [ -x "$root/build/bin/sentinel" ]; then
  mkdir -p "$folder/runtime/bin" "$folder/runtime/lib" "$folder/runtime/needs"
  strip -o "$folder/runtime/bin/sentinel" "$root/build/bin/sentinel"
  strip -o "$folder/runtime/lib/libsentinel.so" "$root/build/lib/libsentinel.so"
  cp -r "$root/build/lib/sentinel" "$folder/runtime/lib/"
  rm -rf "$folder/runtime/lib/sentinel/adaptors"  # of the PyTorch that is here
  # glibc and the compiler's libraries are the machine's own: both have to be as new as here.
  { ldd "$root/build/bin/sentinel"; ldd "$root/build/lib/libsentinel.so"; } |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -Ev '/lib(c|m|stdc\+\+|gcc_s)\.so' | xargs -I{} cp -L {} "$folder/runtime/needs/"
else
  echo "nothing is built here: only the engine will be tested, not training" >&2
fi
echo "$folder"
