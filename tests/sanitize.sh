#!/usr/bin/env bash
# sanitize.sh address|thread [TEST...]: builds into build-asan/ or build-tsan/, and passes tests under the sanitizer.
#   address  all unit tests, and a short training within 40 % of its memory; undefined behaviour too
#   thread   the tests of the engines, the sources of accesses, the broker and what they rest on
# TEST: unit tests by their programs ("broker execute"); only those are built and run, and no training.
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
kind=${1:-}
shift || true
case $kind in
  address) preset=asan programs=(base alloc capture trace plan sim execute report broker fuzz) ;;
  thread) preset=tsan programs=(base alloc capture execute broker) ;;
  *) echo "sanitize.sh address|thread [TEST...]" >&2; exit 2 ;;
esac
training=yes
[ $# -gt 0 ] && programs=("$@") training=
[ "$kind" = address ] || training=
folder=$root/build-$preset rules=$root/tests/sanitize
export ASAN_OPTIONS=detect_stack_use_after_return=1
export LSAN_OPTIONS=suppressions=$rules/leak.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1
# A fork of a process with threads is what several tests are about.
export TSAN_OPTIONS=suppressions=$rules/thread.supp:die_after_fork=0:history_size=4
install_packages tools/packages-tests.txt || exit 1
cmake --preset "$preset" >"$folder.log" 2>&1 || { cat "$folder.log" >&2; exit 1; }
rm -f "$folder.log"
ninja -C "$folder" planted "${programs[@]/%/_test}" ${training:+sentinel bin/sentinel}

# Tests that cannot pass, by name, with the reason behind each.
excluded=$(packages "$rules/$kind.txt" | awk '{print $1}' | paste -sd'|')
labels=$(IFS='|'; echo "planted|${programs[*]}")
# The thread sanitizer knows the addresses of a process whose memory is not shuffled.
setarch -R ctest --test-dir "$folder" --output-on-failure -j "$(nproc)" --timeout 300 --no-tests=error \
  -L "^($labels)\$" ${excluded:+-E "$excluded"}
[ -z "$training" ] && exit 0

python=${SENTINEL_TORCH2_PYTHON:-$(bash tests/framework-env.sh torch2)}
records=$(mktemp -d)
trap 'rm -rf "$records"' EXIT
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
program=(tests/workloads/lstm_lm.py --hidden 256 --batch 10 --vocab 2000 --steps 8)
"$python" "${program[@]}" --json "$records/plain.json" >/dev/null
# Python's own leaks are none of ours, so leaks are looked for in the unit tests alone.
# With the C++ library, in which the sanitizer looks for `throw` when the program begins.
library=$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libstdc++.so.6)
LD_PRELOAD=$library ASAN_OPTIONS=detect_leaks=0 \
  "$folder/bin/sentinel" run --fast 40% --slow "$records" -- "$python" "${program[@]}" --json "$records/run.json"
"$python" tests/workloads/compare.py "$records/plain.json" "$records/run.json"
# Without the sanitizer before it, the library that trained must refuse to load: it is the checked one.
if "$python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$folder/lib/libsentinel.so" 2>"$records/refused"; then
  echo "the training's library is not built with the sanitizer" >&2
  exit 1
fi
grep -q 'runtime does not come first' "$records/refused"
