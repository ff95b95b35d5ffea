# shellcheck shell=bash
# Sourced by lab.sh and its tests: messages, and what to say when something is missing.

say() { echo "lab: $*" >&2; }

die() { say "$1"; exit "${2:-$EXIT_GUEST_DIED}"; }

# require PACKAGE COMMAND…: remembers the package if one of its commands is absent.
missing_packages=()
require() {
  local package=$1 command
  shift
  for command in "$@"; do
    command -v "$command" >/dev/null || [ -e "$command" ] || { missing_packages+=("$package"); return 0; }
  done
}

# Ends the script where a required package is absent.
stop_if_missing() {
  [ ${#missing_packages[@]} -eq 0 ] && return 0
  say "missing: ${missing_packages[*]}"
  say "on Debian 12: apt-get install --no-install-recommends ${missing_packages[*]}"
  exit "$EXIT_MISSING"
}
