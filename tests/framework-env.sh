#!/usr/bin/env bash
# framework-env.sh tensorflow|torch2
# Prints the path of a python3 that has the packages of tests/NAME.txt, and nothing else, on stdout.
# Makes the virtual environment where there is none yet, outside the tree, once for each such list.
# Exits with 69 where the package index cannot be reached.
set -euo pipefail
name=${1:?tensorflow or torch2}
list=$(dirname "${BASH_SOURCE[0]}")/$name.txt
base=${SENTINEL_PYTHON:-/usr/bin/python3}
key=$({ cat "$list"; "$base" -VV; } | sha256sum | cut -c1-12)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/sentinel/$name-$key
if [ ! -x "$folder/bin/python3" ]; then
  mkdir -p "$(dirname "$folder")"
  exec 9>"$folder.lock"
  flock 9  # two test runs make it once
fi
if [ ! -x "$folder/bin/python3" ]; then
  partial=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$partial"' EXIT
  echo "making the environment for $name in $folder, once (1 to 5 GB)" >&2
  "$base" -m venv "$partial" >&2
  pip=("$partial/bin/python3" -m pip --disable-pip-version-check)
  if ! "${pip[@]}" install --quiet -r "$list" >&2; then
    "${pip[@]}" index versions numpy >/dev/null 2>&1 && exit 1
    echo "the package index (PyPI) cannot be reached" >&2
    exit 69
  fi
  # A virtual environment names its own folder only in scripts that nobody runs here.
  mv "$partial" "$folder"
fi
echo "$folder/bin/python3"
