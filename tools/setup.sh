# shellcheck shell=bash
# Sourced by quickstart.sh and tests/run.sh: installs what is missing and builds into build/.
# A user who is not root is told what to install instead.
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

# With another BLAS first in the alternatives the same training is several times slower, and two runs
# are compared on different arithmetic.
use_openmp_blas() {
  local link target
  for link in libblas.so.3 liblapack.so.3 libopenblas.so.0; do
    target=/usr/lib/$(uname -m)-linux-gnu/openblas-openmp/$link
    [ -e "$target" ] || continue
    case $(readlink -f "/usr/lib/$(uname -m)-linux-gnu/$link") in
      *openblas-openmp*) ;;
      *) if [ "$(id -u)" -eq 0 ]; then
           update-alternatives --set "$link-$(uname -m)-linux-gnu" "$target" >/dev/null
         else
           echo "note: $link is not OpenBLAS with OpenMP; as root: update-alternatives --set $link-$(uname -m)-linux-gnu $target" >&2
         fi ;;
    esac
  done
}

build() {
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo >build.log 2>&1 ||
    { cat build.log >&2; exit 1; }
  ninja -C build "$@"
  rm -f build.log
}

install_packages tools/packages.txt || exit 1
use_openmp_blas
