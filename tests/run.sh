#!/usr/bin/env bash
# Installs what is missing, builds, passes every test. `tests/run.sh quick` leaves out the trainings.
# Trainings take turns by commit (tests/conftest.py), and so do sanitizers, fuzzing and the kernels of the guest
# (tests/README.md); SENTINEL_TURN= has all of them.
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
install_packages tools/packages-torch.txt || exit 1
install_packages tools/packages-tests.txt || exit 1
own_blas
build  # all of it
export SENTINEL_BUILD=$root/build OMP_WAIT_POLICY=passive
python=${SENTINEL_PYTHON:-/usr/bin/python3}
ctest --test-dir build --output-on-failure -j 2
[ "${1:-}" = quick ] && exit 0
SENTINEL_TORCH2_PYTHON=${SENTINEL_TORCH2_PYTHON:-$(bash tests/framework-env.sh torch2)}
export SENTINEL_TORCH2_PYTHON
install_packages tools/packages-kernel.txt || echo "the tests in the kernel's guest will be skipped" >&2

commit=$(git rev-parse --short=6 HEAD 2>/dev/null) || commit=
export SENTINEL_TURN=${SENTINEL_TURN-${commit:+$((16#$commit % 7))}}

is_turn() { [ -z "$SENTINEL_TURN" ] || [ $((SENTINEL_TURN % 7)) = "$1" ]; }

# Parts of what takes builds of their own: minutes where the compiler's cache is warm.
other_builds() {
  if is_turn 0; then
    if install_packages tools/packages-fuzz.txt; then
      bash tests/fuzz/run.sh 60
    else
      echo "fuzzing is skipped: a package is missing" >&2
    fi
  fi
  if is_turn 1; then bash tests/sanitize.sh thread base broker capture; fi
  if is_turn 2; then bash tests/sanitize.sh address base alloc trace plan sim report broker; fi
}

# suite NAME ARGUMENT...
suite() {
  local name=$1
  shift
  "$python" -m pytest -q -rs --durations=12 --durations-min=30 -o cache_dir="$root/build/pytest/$name" "$@"
}

other_builds

# Each part has a kernel of its own, which takes minutes to build where no earlier run has kept it. What needs none is
# tested each time.
guests() {
  local status=0
  if ! is_turn 3 && ! is_turn 4; then
    suite kernel tests/kernel/test_absence.py tests/kernel/test_patches.py -k "not compiles" || status=$?
  fi
  if is_turn 3; then LAB_LINUX=6.1 suite kernel tests/kernel -k "not debug_kernel" || status=$?; fi
  if is_turn 4; then LAB_LINUX=6.12 suite kernel tests/kernel -k "not debug_kernel" || status=$?; fi
  if is_turn 5; then LAB_LINUX=6.1 suite kernel tests/kernel -k debug_kernel || status=$?; fi
  if is_turn 6; then LAB_LINUX=6.12 suite kernel tests/kernel -k debug_kernel || status=$?; fi
  return "$status"
}

# Guests and trainings side by side. A guest's processors wait for one another, so the trainings make way for them.
# Two trainings at once take 15 s with a thread each and 19 s with two.
guests >build/kernel-tests.log 2>&1 &
guests=$!
trap 'kill $guests 2>/dev/null || true' EXIT
status=0
(
  renice -n 15 -p "$BASHPID" >/dev/null
  export OMP_NUM_THREADS=1
  suite trainings -n 2 --dist loadfile tests/integration tests/packaging
) || status=$?
wait "$guests" || status=$?
cat build/kernel-tests.log
exit "$status"
