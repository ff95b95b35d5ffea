#!/usr/bin/env bash
# Whether a series compiles after each of its patches: bash kernel/lab/each_patch.sh [6.1|6.12]
#
# Applies the patches one by one and builds after each what they touch or what includes it, with the options of
# the laboratory's plain kernel, SENTINEL among them once it exists; at the end once more with SENTINEL off,
# and the selftests. A warning counts as a failure. About six minutes on two cores with an empty ccache.
# shellcheck source-path=SCRIPTDIR
set -Eeuo pipefail
LAB_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
KERNEL_DIR=$(dirname "$LAB_DIR")
readonly EXIT_MISSING=77 EXIT_GUEST_DIED=125
# shellcheck source=common.sh
source "$LAB_DIR/common.sh"
# shellcheck source=source.sh
source "$LAB_DIR/source.sh"
# shellcheck source=build.sh
source "$LAB_DIR/build.sh"

TARGETS=(mm/ kernel/fork.o arch/x86/mm/ arch/x86/kernel/)

# check WHAT: builds TARGETS and tells what of it went wrong.
check() {
  local began=$SECONDS
  make -s -C "$tree" O="$tree/objects" CC="${compiler[*]}" HOSTCC="${compiler[*]}" "-j${LAB_JOBS:-$(nproc)}" \
    "${TARGETS[@]}" >"$tree/messages" 2>&1 || { cat "$tree/messages" >&2; die "$1 does not compile" 1; }
  if grep -q 'warning:' "$tree/messages"; then cat "$tree/messages" >&2; die "$1 compiles with warnings" 1; fi
  echo "ok: $1 ($((SECONDS - began)) s)"
}

option() { grep -qx CONFIG_SENTINEL=y "$tree/objects/.config" && echo "SENTINEL on" || echo "no SENTINEL"; }

KERNEL_LINUX=${1:-6.1}
use_linux
require_build_tools
tree=$(mktemp -d "${TMPDIR:-/tmp}/sentinel-each.XXXXXX")
trap 'rm -rf "$tree"' EXIT
compiler=(gcc)
if command -v ccache >/dev/null; then compiler=(ccache gcc); fi

mkdir "$tree/objects"
tar -xf "$KERNEL_TARBALL" -C "$tree" --strip-components=1
configure "$tree" "$tree/objects" plain
make -s -C "$tree" O="$tree/objects" CC="${compiler[*]}" HOSTCC="${compiler[*]}" prepare >/dev/null
while IFS= read -r patch; do
  patch -d "$tree" -p1 --batch --fuzz=0 --silent <"$patch" || die "$(basename "$patch") does not apply" 1
  configure "$tree" "$tree/objects" plain
  check "$(basename "$patch" .patch), $(option)"
done < <(list_patches)
[ "$(option)" = "SENTINEL on" ] || die "the whole series does not offer SENTINEL" 1
build_selftests "$tree" "$tree/selftests"
echo "ok: selftests"
(cd "$tree" && scripts/config --file objects/.config --disable SENTINEL)
make -s -C "$tree" O="$tree/objects" olddefconfig >/dev/null
check "all patches, $(option)"
