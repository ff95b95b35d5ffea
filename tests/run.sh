#!/usr/bin/env bash
# Installs what is missing, builds, passes every test. `tests/run.sh quick` leaves out the trainings.
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
build
export SENTINEL_BUILD=$root/build OMP_WAIT_POLICY=passive
python=${SENTINEL_PYTHON:-/usr/bin/python3}
ctest --test-dir build --output-on-failure -j 2
[ "${1:-}" = quick ] && exit 0
install_packages tools/packages-kernel.txt || echo "the tests in the kernel's guest will be skipped" >&2
trainings() { "$python" -m pytest -q -rs --durations=12 --durations-min=30 -o cache_dir="$root/build/pytest" "$@"; }
trainings -n 2 --dist loadfile tests/integration  # two side by side
trainings tests/kernel
