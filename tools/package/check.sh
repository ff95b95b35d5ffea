#!/usr/bin/env bash
# check.sh bookworm|trixie|noble PACKAGE.deb [FOLDER]
# Installs the package in a clean root file system of that release, with its own PyTorch where it has one: records,
# reports, trains within a budget to the same bits, and builds C programs by pkg-config and CMake. Then removes it, and
# fails if a file is left.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
suite=${1:?bookworm, trixie or noble} package=${2:?a .deb}
place=${3:-/var/tmp/sentinel-roots}/$suite-check
# shellcheck source=tools/package/roots.sh
source "$root/tools/package/roots.sh"

trap 'leave_root "$place"' EXIT
leave_root "$place"
rm -rf --one-file-system "$place"
enter_root "$suite" "$place"
mkdir "$place/try"
cp "$package" "$place/try/sentinel.deb"
cp "$root/tests/packaging/train.py" "$root/tests/integration/c_program/train.c" "$place/try/"
here() { in_root "$place" env OMP_NUM_THREADS=1 sh -euc "cd /try; $1"; }
files() { in_root "$place" find /etc /usr /var /opt /root -xdev ! -path '/var/lib/dpkg/*' ! -path '/var/cache/*' \
  ! -path '/var/lib/apt/*' ! -path '/var/log/*' ! -path '/var/tmp/*' ! -name '*.pyc' ! -name __pycache__ | sort; }

case $suite in
  noble) frameworks="python3" ;;
  *) frameworks="python3-torch python3-numpy libopenblas0-openmp" ;;
esac

echo "== before"
# Those that stay when the package goes: PyTorch, and what the programs in C are built with.
here "apt-get -qq install -y --no-install-recommends $frameworks gcc libc6-dev cmake make pkgconf man-db >/dev/null"
here "apt-get -qq install -y \$(dpkg-deb -f sentinel.deb Depends Recommends | sed -E 's/^[A-Za-z]*: //; s/\([^)]*\)//g; s/\|[^,]*//g; s/,/ /g; s/:any//g') >/dev/null"
files >"$place/before"
echo "== installed"
here "apt-get -qq install -y ./sentinel.deb >/dev/null"
here "sentinel --version; sentinel doctor | grep -A1 PyTorch"
here "test -e /usr/share/man/man1/sentinel.1.gz && man sentinel | head -n 3"
here "test -s /usr/lib/systemd/user/sentinel-broker.socket && test -s /usr/lib/systemd/system/sentinel-broker.service"
here "test -s /usr/share/bash-completion/completions/sentinel"
echo "== used"
if [ "$suite" != noble ]; then
  here "python3 train.py >plain; sentinel record -o step.sentinel -- python3 train.py >recorded
  sentinel report step.sentinel summary | head -n 3
  sentinel run --fast 20% -- python3 train.py >within; cmp plain recorded; cmp plain within; echo identical
  sentinel simulate step.sentinel --machine optane --policy autotm --fast 50%
  ! ls /root/.cache/sentinel/*.so 2>/dev/null"
fi
here "cc train.c -o train \$(pkg-config --cflags --libs sentinel) -lm; ./train 6 64 2; test -s profile.sentinel
  sentinel report profile.sentinel summary | head -n 3
  sentinel simulate profile.sentinel --machine optane --policy autotm --fast 50%; rm profile.sentinel"
here "printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(consumer C)' 'find_package(Sentinel REQUIRED)' \
  'add_executable(consumer train.c)' 'target_link_libraries(consumer Sentinel::sentinel m)' >CMakeLists.txt
  cmake -S . -B consumer >/dev/null; cmake --build consumer >/dev/null; consumer/consumer 6 64 2; test -s profile.sentinel"
echo "== removed, purged"
here "rm -rf /root/.cache; apt-get -qq remove -y sentinel-hm >/dev/null; ! command -v sentinel"
here "dpkg --purge sentinel-hm 2>/dev/null"  # apt knows no package that is gone and in no archive
files >"$place/after"
diff "$place/before" "$place/after"
if [ -e "$place/usr/lib/sentinel-hm" ]; then
  find "$place/usr/lib/sentinel-hm" >&2
  exit 1
fi
echo "nothing is left"
