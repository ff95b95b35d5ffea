# shellcheck shell=bash disable=SC2054,SC2154 # commas belong to QEMU; run_dir, shape and variant are lab.sh's
# Sourced by lab.sh: the guest, from its command line to the last line of its log.
#
# run_dir, made by lab.sh, is shared with the guest, which finds there what to run and leaves there what
# came of it:
#   guest      shell variables for the guest's init
#   command    a bash script: the caller's folder, environment and command
#   stdout, stderr, status   written by the guest while and after the command runs
#   failure    written by the guest if it could not become what was asked
#   bzImage, initramfs, scratch.img, swap.img   what QEMU is given

require_guest_tools() {
  [ "$(uname -m)" = x86_64 ] || { say "the laboratory needs an x86-64 machine"; exit "$EXIT_MISSING"; }
  require qemu-system-x86 qemu-system-x86_64
  require busybox-static busybox
  require cpio cpio
  require e2fsprogs /sbin/mkfs.ext4
  require util-linux setpriv
  if ldd "$(command -v busybox)" >/dev/null 2>&1; then missing_packages+=(busybox-static); fi
  stop_if_missing
}

# The command as a script that bash reads in the guest: %q keeps every argument as it is.
write_command() {
  local shape=$1 name
  shift
  {
    printf 'cd %q || exit 125\n' "$PWD"
    for name in $(passed_variables); do
      printf 'export %s=%q\n' "$name" "${!name}"
    done
    printf 'export LAB_OUT=%q LAB_SHAPE=%q SENTINEL_SWAP=/dev/vdb LAB_SELFTESTS=%q LAB_KERNEL=%q\n' \
      "$(output_folder)" "$shape" "${selftests:-}" "${kernel_folder:-}"
    printf 'exec --'
    printf ' %q' "$@"
    echo
  } >"$run_dir/command"
}

passed_variables() {
  local listed=${LAB_ENV:-}
  compgen -e | grep -xE "PATH|HOME|USER|LOGNAME|TERM|LANG|LANGUAGE|(LC|SENTINEL|LAB)_.*|${listed// /|}" || true
}

output_folder() { readlink -f "${LAB_OUT:-$run_dir/out}"; }

boot_guest() {
  local shape=$1 memory=$2 image=$3 status=0
  prepare_guest "$shape"
  start_guest "$shape" "$memory" "$image"
  start_readers
  wait_for_guest || status=$?
  return "$status"
}

prepare_guest() {
  kernel_log=${LAB_LOG:-$run_dir/kernel.log}
  : >"$kernel_log"
  : >"$run_dir/stdout"
  : >"$run_dir/stderr"
  mkdir -p "${LAB_OUT:-$run_dir/out}"
  printf '%s=%q\n' shape "$1" out "$(output_folder)" here "$PWD" repository "$(dirname "$KERNEL_DIR")" \
    >"$run_dir/guest"
  make_initramfs
  make_disks
}

make_initramfs() {
  local root=$run_dir/initramfs.d
  mkdir -p "$root/bin"
  cp "$(command -v busybox)" "$root/bin/busybox"
  install -m 755 "$LAB_DIR/init" "$LAB_DIR/run-command" "$root/"
  (cd "$root" && find . | cpio -o -H newc --quiet) >"$run_dir/initramfs"
  rm -rf "$root"
}

# Sparse: they take what the guest writes.
make_disks() {
  truncate -s 8G "$run_dir/scratch.img"
  truncate -s 2G "$run_dir/swap.img"
  PATH=$PATH:/sbin:/usr/sbin mkfs.ext4 -q -m 0 -T largefile -E lazy_itable_init=1,lazy_journal_init=1,nodiscard "$run_dir/scratch.img"
  PATH=$PATH:/sbin:/usr/sbin mkswap -q "$run_dir/swap.img" >/dev/null
}

# no_timer_check: a host that is busy may not deliver a tick within the moment that the kernel waits for one.
start_guest() {
  local shape=$1 memory=$2 image=$3 arguments=()
  arguments=(-nodefaults -no-user-config -display none -monitor none -no-reboot
    -smp "${LAB_CPUS:-2}"
    -kernel "$image" -initrd "$run_dir/initramfs"
    -append "console=ttyS0 no_timer_check ignore_loglevel panic=-1 oops=panic watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120 memhp_default_state=online_movable ${LAB_APPEND:-}"
    -serial "file:$(option_value "$kernel_log")"
    -virtfs "local,id=root,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"
    -virtfs "local,id=lab,path=$(option_value "$run_dir"),mount_tag=lab,security_model=none,multidevs=remap"
    -virtfs "local,id=out,path=$(option_value "$(output_folder)"),mount_tag=out,security_model=none,multidevs=remap"
    -drive "file=$(option_value "$run_dir")/scratch.img,if=virtio,format=raw,cache=unsafe,discard=unmap"
    -drive "file=$(option_value "$run_dir")/swap.img,if=virtio,format=raw,cache=unsafe,discard=unmap")
  shape_arguments "$shape" "$memory"
  accelerator_arguments "$image"
  # The guest does not outlive this script, however it ends.
  setpriv --pdeathsig KILL qemu-system-x86_64 "${arguments[@]}" </dev/null >&2 &
  qemu_pid=$!
}

# QEMU reads a comma in a value as two.
option_value() { echo "${1//,/,,}"; }

# Adds the nodes of a shape to `arguments`.
shape_arguments() {
  local fast=${2%%+*} slow=${2#*+}
  case $1 in
    dram)
      arguments+=(-machine q35 -m "$fast") ;;
    dram+dram)
      arguments+=(-machine q35,hmat=on -m "$(sum_of_sizes "$fast" "$slow")M"
        -object "memory-backend-ram,id=fast,size=$fast" -object "memory-backend-ram,id=slow,size=$slow"
        -numa "node,nodeid=0,memdev=fast,cpus=0-$((${LAB_CPUS:-2} - 1)),initiator=0"
        -numa node,nodeid=1,memdev=slow,initiator=0
        -numa dist,src=0,dst=1,val=30)
      add_memory_attributes 0 80 100
      add_memory_attributes 1 300 20 ;;
    dram+pmem)
      arguments+=(-machine q35,nvdimm=on -m "$fast,slots=2,maxmem=$(($(sum_of_sizes "$fast" "$slow") + 1024))M"
        -object "memory-backend-ram,id=fast,size=$fast" -object "memory-backend-ram,id=slow,size=$slow"
        -numa "node,nodeid=0,memdev=fast,cpus=0-$((${LAB_CPUS:-2} - 1))"
        -numa node,nodeid=1
        -numa dist,src=0,dst=1,val=30
        -device nvdimm,memdev=slow,id=pmem,node=1) ;;
  esac
}

# add_memory_attributes NODE NANOSECONDS GIGABYTES: what the firmware says of a node. Names, not speeds:
# both nodes are the host's memory.
add_memory_attributes() {
  arguments+=(
    -numa "hmat-lb,initiator=0,target=$1,hierarchy=memory,data-type=access-latency,latency=$2"
    -numa "hmat-lb,initiator=0,target=$1,hierarchy=memory,data-type=access-bandwidth,bandwidth=${3}G")
}

# In MiB.
sum_of_sizes() { echo $((($(numfmt --from=iec "$1") + $(numfmt --from=iec "$2")) / 1048576)); }

# The debugging kernel is booted without five-level paging: while the boot CPU's feature bits are read, KASAN takes
# the addresses of such a machine for wild ones (lkml, June 2026, "Fix false-positive wild-memory-access on x86").
accelerator_arguments() {
  local accelerator=${LAB_ACCEL:-} features=
  [ "$variant" = plain ] || features=,la57=off
  if [ -z "$accelerator" ]; then
    accelerator=tcg
    if kvm_works "$1" "$features"; then accelerator=kvm; fi
  fi
  case $accelerator in
    kvm) arguments+=(-accel kvm -cpu "host$features") ;;
    *) arguments+=(-accel tcg,thread=multi -cpu "max$features") ;;
  esac
}

# A /dev/kvm that opens and makes a machine may still not run one, so a guest is booted in it: once, for
# the answer is kept until this machine starts again.
kvm_works() {
  local answer
  [ -w /dev/kvm ] || return 1
  answer=$KERNEL_CACHE/kvm-$(cat /proc/sys/kernel/random/boot_id)
  if [ ! -e "$answer" ]; then
    rm -f "$KERNEL_CACHE"/kvm-*
    (boot_in_kvm "$1" "$2") >"$run_dir/kvm" 2>/dev/null || true
    mv "$run_dir/kvm" "$answer"
  fi
  grep -q 'lab: init runs' "$answer"
}

boot_in_kvm() {
  timeout -k 1 10 qemu-system-x86_64 -nodefaults -no-user-config -display none -monitor none -no-reboot \
    -machine q35 -accel kvm -cpu "host$2" -m 512 -serial stdio \
    -kernel "$1" -initrd "$run_dir/initramfs" -append "console=ttyS0 no_timer_check panic=-1 lab_only_init=1" </dev/null
}

# Copies what the command prints while it prints it, until the guest is gone.
start_readers() {
  setpriv --pdeathsig KILL tail -c +1 -s 0.1 -f --pid="$qemu_pid" "$run_dir/stdout" 2>/dev/null &
  stdout_pid=$!
  setpriv --pdeathsig KILL tail -c +1 -s 0.1 -f --pid="$qemu_pid" "$run_dir/stderr" >&2 2>/dev/null &
  stderr_pid=$!
  timer_pid=
  if [ -n "${LAB_TIMEOUT:-}" ]; then
    setpriv --pdeathsig KILL sleep "$LAB_TIMEOUT" &
    timer_pid=$!
  fi
}

# The command's status; or why there is none.
wait_for_guest() {
  local ended
  wait -n -p ended "$qemu_pid" "$stdout_pid" "$stderr_pid" ${timer_pid:+"$timer_pid"} || true
  case ${ended:-} in
    "${timer_pid:-none}") say "stopped after $LAB_TIMEOUT seconds"; stop_guest; return "$EXIT_TIMEOUT" ;;
    "$qemu_pid") ;;
    *) # A reader ends before the guest when nobody reads it any more.
       if kill -0 "$qemu_pid" 2>/dev/null && sleep 0.5 && kill -0 "$qemu_pid" 2>/dev/null; then stop_guest; return 141; fi
       wait "$qemu_pid" || true ;;
  esac
  wait "$stdout_pid" "$stderr_pid" || true
  if [ -s "$run_dir/failure" ]; then
    say "the guest says: $(cat "$run_dir/failure")"
    return "$EXIT_GUEST_DIED"
  fi
  if [ ! -s "$run_dir/status" ]; then
    say "the guest ended before its command did; the end of its log:"
    tail -n 40 "$kernel_log" >&2
    return "$EXIT_GUEST_DIED"
  fi
  return "$(cat "$run_dir/status")"
}

stop_guest() {
  [ -n "${qemu_pid:-}" ] || return 0
  kill -KILL "$qemu_pid" 2>/dev/null || true
  wait "$qemu_pid" 2>/dev/null || true
}

# finish STATUS: judges the guest's log and ends the script.
finish() {
  local status=$1
  bash "$LAB_DIR/check_log.sh" "$kernel_log" >&2 || { [ "$status" -eq 0 ] && status=1; }
  exit "$status"
}

clean_up() {
  local status=$?
  stop_guest
  # shellcheck disable=SC2086 # of these there may be none
  kill ${build_pid:-} ${stdout_pid:-} ${stderr_pid:-} ${timer_pid:-} 2>/dev/null || true
  case $status in
    0 | 129 | 130 | 141 | 143) ;;
    *) keep_log ;;
  esac
  rm -rf "$run_dir"
  exit "$status"
}

keep_log() {
  local kept
  [ -s "$run_dir/kernel.log" ] || return 0
  kept=$(mktemp "${TMPDIR:-/tmp}/sentinel-lab-XXXXXX.log")
  cp "$run_dir/kernel.log" "$kept"
  say "the guest's log is kept in $kept"
}
