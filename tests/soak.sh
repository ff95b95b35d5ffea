#!/usr/bin/env bash
# soak.sh HOURS [--seed N]: trains seven models under random policies, budgets and faults, and compares each with plain.
# A second call with the same seed goes on after the last finished case. Cases and the table lie in build-soak/SEED/.
source "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
install_packages tools/packages-torch.txt || exit 1
install_packages tools/packages-tests.txt || exit 1
own_blas
build sentinel bin/sentinel
SENTINEL_TORCH2_PYTHON=${SENTINEL_TORCH2_PYTHON:-$(bash tests/framework-env.sh torch2)}
export SENTINEL_TORCH2_PYTHON OMP_WAIT_POLICY=passive OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec /usr/bin/python3 tests/soak/soak.py "$@"
