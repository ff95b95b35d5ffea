# shellcheck shell=bash
# Sourced by quickstart.sh and tests/run.sh: installs the packages that the build needs, and builds into build/.
# A user who is not root is told what to install instead. Of the system nothing else is changed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export PATH=$PATH:/usr/sbin:/sbin  # mkfs, swapon

packages() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$1"; }

missing_packages() {
  packages "$1" | while read -r package; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

# install_packages LIST
install_packages() {
  local missing
  missing=$(missing_packages "$1" | tr '\n' ' ')
  [ -z "${missing// /}" ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    echo "These packages are missing; install them as root and run this again:" >&2
    echo "  apt-get install --no-install-recommends $missing" >&2
    return 1
  fi
  echo "installing: $missing"
  apt-get -qq update
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing >/dev/null
}

build() {
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo >build.log 2>&1 ||
    { cat build.log >&2; exit 1; }
  ninja -C build "$@"
  rm -f build.log
}

source tools/blas.sh
install_packages tools/packages.txt || exit 1
