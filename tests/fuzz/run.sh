#!/usr/bin/env bash
# run.sh [SECONDS [READER...]]: fuzzes each reader for so long (60 s), and prints a table. Builds into build-fuzz/.
# Fails where an input ends the program, takes over 10 s or 1 GiB, or is answered by anything but the project's Error.
source "$(dirname "${BASH_SOURCE[0]}")/../../tools/setup.sh"
newest_clang() {
  for version in 21 20 19 18 17 16; do
    command -v "clang++-$version" >/dev/null && echo "$version" && return
  done
}
[ -n "$(newest_clang)" ] || install_packages tools/packages-fuzz.txt || exit 1
version=$(newest_clang)
folder=$root/build-fuzz
cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSENTINEL_SANITIZE=fuzzer \
  -DCMAKE_C_COMPILER="clang-$version" -DCMAKE_CXX_COMPILER="clang++-$version" >"$folder.log" 2>&1 ||
  { cat "$folder.log" >&2; exit 1; }
rm -f "$folder.log"
ninja -C "$folder" fuzzer corpus_writer
symbolizer=$(command -v "llvm-symbolizer-$version" || command -v llvm-symbolizer || true)
export ASAN_SYMBOLIZER_PATH=$symbolizer
exec /usr/bin/python3 tests/fuzz/campaign.py "$folder" "$@"
