#!/usr/bin/env bash
# Tests of the laboratory itself: bash kernel/lab/test.sh [--debug] [NAME…]. A boot per shape and question, so
# that each answer is that of a fresh guest; about three minutes under emulation once the kernel is built.
# With NAMEs only those tests: shapes, storage, …
# shellcheck disable=SC1003,SC2016 # the guest expands what it is given
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
options=()
if [ "${1:-}" = --debug ]; then options=(--debug); shift; fi
names=("$@")

# lab ARGUMENT…: runs the laboratory; its streams in $work/out and $work/err, its status in $status.
lab() {
  LAB_LOG=$work/log LAB_TIMEOUT=${LAB_TIMEOUT:-900} bash "$here/../lab.sh" "${options[@]}" "$@" \
    >"$work/out" 2>"$work/err" </dev/null
  status=$?
  if [ "$status" -eq 77 ]; then cat "$work/err" >&2; exit 77; fi
}

# check NAME CONDITION…: CONDITION is a command.
check() {
  local name=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name (status $status)" >&2
    sed 's/^/  out: /' "$work/out" | head -n 20 >&2
    sed 's/^/  err: /' "$work/err" | tail -n 20 >&2
  fi
}

status_is() { [ "$status" -eq "$1" ]; }
out_is() { [ "$(cat "$work/out")" = "$1" ]; }
out_has() { grep -qE -- "$1" "$work/out"; }
err_has() { grep -qE -- "$1" "$work/err"; }

test_statuses() {
  local code
  for code in 0 3 125; do
    lab --shape dram -- sh -c "exit $code"
    check "status $code" status_is "$code"
  done
  lab --shape dram -- sh -c 'kill -TERM $$'
  check "killed by a signal" status_is 143
  lab --shape dram -- /no/such/command
  check "no such command" status_is 127
}

test_streams() {
  local arguments=("two words" "it's" '"quoted"' $'two\nlines' '$HOME' '*' '' '\' 'ü')
  lab --shape dram -- sh -c 'echo to-out; echo to-err >&2'
  check "standard output apart" out_is to-out
  check "standard error apart" err_has '^to-err$'
  check "nothing else on standard error" test "$(wc -l <"$work/err")" -eq 1
  lab --shape dram -- printf '<%s>' "${arguments[@]}"
  check "arguments arrive as they are" out_is "$(printf '<%s>' "${arguments[@]}")"
  head -c 3000000 /dev/urandom >"$work/bytes"
  lab --shape dram -- cat "$work/bytes"
  check "any bytes, all of them" cmp -s "$work/bytes" "$work/out"
  lab --shape dram -- cat
  check "standard input is empty" status_is 0
}

test_output_is_live() {
  local start
  LAB_TIMEOUT=120 LAB_LOG=$work/log bash "$here/../lab.sh" "${options[@]}" --shape dram -- \
    sh -c 'echo early; sleep 600' >"$work/out" 2>"$work/err" &
  start=$SECONDS
  until grep -q early "$work/out" || [ $((SECONDS - start)) -gt 100 ]; do sleep 0.5; done
  check "output arrives while the command runs" out_has early
  kill -TERM $!
  wait $!
  status=$?
  check "stopped by a signal" status_is 143
  check "no guest is left" no_guest_of "$work/log"
}

# A guest writes its log to the file of that name.
no_guest_of() { ! pgrep -f "qemu-system.*file:$1" >/dev/null; }

test_time_limit() {
  LAB_TIMEOUT=15 lab --shape dram -- sleep 600
  check "LAB_TIMEOUT" status_is 124
}

test_environment() {
  mkdir -p "$work/shared folder"
  pushd "$here" >/dev/null || return
  SENTINEL_SAYS="a b" OTHER=listed UNLISTED=x LAB_ENV=OTHER LAB_OUT="$work/shared folder" lab --shape dram -- \
    bash -c 'echo "$PWD|$SENTINEL_SAYS|$OTHER|${UNLISTED-}|$(id -u)"; echo kept >"$LAB_OUT/file"'
  popd >/dev/null || return
  check "folder, environment and user" out_is "$here|a b|listed||0"
  check "files get out through LAB_OUT" grep -q kept "$work/shared folder/file"
}

test_shapes() {
  lab --shape dram -- cat /sys/devices/system/node/online
  check "one node" out_is 0
  lab --shape dram+dram --memory 1G+2G -- bash -c '
    cat /sys/devices/system/node/{has_memory,has_cpu} /sys/devices/system/node/node1/cpulist
    awk "/MemTotal/ { print int(\$4 / 1000000 + 0.5) }" /sys/devices/system/node/node{0,1}/meminfo
    cat /sys/devices/system/node/node1/access0/initiators/read_bandwidth'
  check "two DRAM nodes, the second without processors" out_is $'0-1\n0\n\n1\n2\n20480'
  lab --shape dram+pmem --memory 2G+2G -- bash -c '
    cat /sys/devices/system/node/{has_memory,has_cpu}
    for tier in /sys/devices/virtual/memory_tiering/memory_tier*; do echo "${tier##*_} $(cat "$tier/nodelist")"; done
    echo 1 >/sys/kernel/mm/numa/demotion_enabled && cat /sys/kernel/mm/numa/demotion_enabled
    numactl --membind=1 sh -c "head -c 100000000 /dev/zero | tail -c 1 | wc -c"'
  check "persistent memory is a node in a slower tier" out_is $'0-1\n0\ntier22 1\ntier4 0\ntrue\n1'
}

test_storage() {
  lab --shape dram -- bash -c '
    dd if=/dev/zero of=/var/tmp/file bs=1M count=64 oflag=direct 2>/dev/null && stat -c %s /var/tmp/file
    swapon "$SENTINEL_SWAP" && grep -c "$SENTINEL_SWAP" /proc/swaps
    echo changed >/etc/hostname && cat /etc/hostname
    stat -f -c %T /sys/fs/cgroup'
  check "O_DIRECT, swap, a root that can be changed, cgroups" out_is $'67108864\n1\nchanged\ncgroup2fs'
  check "the host's files are as they were" test "$(cat /etc/hostname)" != changed
}

test_trouble_is_noticed() {
  lab --shape dram -- sh -c 'echo WARNING >/sys/kernel/debug/provoke-crash/DIRECT; echo went on'
  check "a warning fails a command that succeeds" status_is 1
  check "the warning is shown" err_has 'WARNING:.*lkdtm_WARNING'
  check "the command went on" out_is "went on"
  lab --shape dram -- sh -c 'echo WARNING >/sys/kernel/debug/provoke-crash/DIRECT; exit 7'
  check "a failing command keeps its status" status_is 7
  lab --shape dram -- sh -c 'echo PANIC >/sys/kernel/debug/provoke-crash/DIRECT'
  check "a panic ends the guest" status_is 125
  check "the panic is shown" err_has 'Kernel panic'
}

test_log_without_end() {
  lab --shape dram -- true
  head -n 20 "$work/log" >"$work/begun"
  for log in "$work/begun" /dev/null "$work/none"; do
    bash "$here/check_log.sh" "$log" >"$work/out"
    status=$?
    check "a log that ends too early is no clean log" status_is 1
  done
  bash "$here/check_log.sh" "$work/log" >"$work/out"
  status=$?
  check "a whole one is" status_is 0
}

test_kernel_has_a_name() {
  lab --shape dram -- sh -c 'cat /proc/version; echo "$LAB_KERNEL"'
  kernel=$(tail -n 1 "$work/out")
  [ -z "$kernel" ] || check "LAB_KERNEL holds the kernel that runs" \
    grep -qaF "$(head -n 1 "$work/out")" "$kernel/vmlinux"
}

test_debug_kernel() {
  lab --debug --shape dram --memory 2G -- sh -c 'echo WRITE_AFTER_FREE >/sys/kernel/debug/provoke-crash/DIRECT'
  check "KASAN is on" err_has 'KASAN: .*use-after-free'
  check "KASAN fails the command" test "$status" -ne 0
}

test_python() {
  lab --memory 3G+3G -- /usr/bin/python3 -c 'import torch; print(torch.ones(2, 2).sum().item())'
  check "PyTorch" out_is 4.0
}

if [ ${#names[@]} -eq 0 ]; then mapfile -t names < <(compgen -A function test_); fi
for name in "${names[@]#test_}"; do
  [ "$name" = debug_kernel ] && [ ${#options[@]} -eq 0 ] && continue
  "test_$name"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
