# shellcheck shell=bash
# Sourced by lab.sh and each_patch.sh: which Linux, its patches, and its source as Debian ships it.
#
# That of 6.1 is the package linux-source-6.1. That of 6.12 is Debian 13's: where the package is not installed, apt
# loads it from that distribution's index, with the archive's signatures checked, and installs nothing.

KERNEL_CACHE=${SENTINEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sentinel}/kernel
LINUX_612=6.12.117-1  # that the series was made against

# Of KERNEL_LINUX, 6.1 or 6.12: sets KERNEL_PATCHES and KERNEL_TARBALL.
use_linux() {
  case $KERNEL_LINUX in
    6.1) KERNEL_PATCHES=$KERNEL_DIR/patches ;;
    6.12) KERNEL_PATCHES=$KERNEL_DIR/patches-6.12 ;;
    *) die "there are no patches for Linux $KERNEL_LINUX" 2 ;;
  esac
  KERNEL_TARBALL=${SENTINEL_KERNEL_TARBALL:-/usr/src/linux-source-$KERNEL_LINUX.tar.xz}
  if [ "$KERNEL_LINUX" = 6.12 ] && [ -z "${SENTINEL_KERNEL_TARBALL:-}" ] && [ ! -e "$KERNEL_TARBALL" ]; then
    fetch_612
  fi
  require "linux-source-$KERNEL_LINUX" "$KERNEL_TARBALL"
}

# What could not be loaded is not tried again for ten minutes: each guest's test would wait for it.
fetch_612() {
  KERNEL_TARBALL=$KERNEL_CACHE/linux-source-$LINUX_612.tar.xz
  [ ! -e "$KERNEL_TARBALL" ] || return 0
  local place failed=$KERNEL_CACHE/linux-source-$LINUX_612.failed
  mkdir -p "$KERNEL_CACHE"
  find "$KERNEL_CACHE" -maxdepth 1 -name 'fetch.*' -mmin +60 -exec rm -rf {} +  # of a run that was killed
  if [ -z "$(find "$failed" -mmin -10 2>/dev/null)" ]; then
    place=$(mktemp -d "$KERNEL_CACHE/fetch.XXXXXX")
    load_612 "$place" >"$place/log" 2>&1 &  # a signal to this script is acted on at once
    if wait $!; then
      mv "$place/source/usr/src/linux-source-6.12.tar.xz" "$KERNEL_TARBALL"
      rm -rf "$place"
      return 0
    fi
    tail -n 3 "$place/log" >&2
    rm -rf "$place"
    touch "$failed"
  fi
  die "missing: linux-source-6.12 $LINUX_612 of Debian 13, which cannot be loaded" "$EXIT_MISSING"
}

# With lists of its own: the system's stay as they are.
load_612() {
  local place=$1 mirror=${LAB_MIRROR:-http://deb.debian.org/debian}
  local signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
  mirror=${mirror%/}
  mkdir -p "$place"/{lists,archives}/partial "$place"/{parts,source}
  touch "$place/status"
  printf 'deb %s\n' "$signed $mirror trixie main" \
    "$signed ${mirror%/debian}/debian-security trixie-security main" >"$place/sources.list"
  local apt=(apt-get -qq -o "Dir::Etc::SourceList=$place/sources.list" -o "Dir::Etc::SourceParts=$place/parts"
    -o "Dir::State::Lists=$place/lists" -o "Dir::State::status=$place/status" -o "Dir::Cache=$place"
    -o APT::Default-Release= -o Acquire::http::Timeout=20 -o Acquire::Retries=1)
  (cd "$place" && "${apt[@]}" update && "${apt[@]}" download "linux-source-6.12=$LINUX_612") &&
    dpkg-deb -x "$place"/linux-source-6.12_*.deb "$place/source"
}

# In numeric order.
list_patches() { find "$KERNEL_PATCHES" -maxdepth 1 -name '*.patch' | sort -V; }
