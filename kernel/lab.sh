#!/usr/bin/env bash
# The kernel laboratory: builds the patched Linux if its inputs changed, boots it in QEMU and runs a
# command in it as root, with this machine's files at their own paths.
#
#   bash kernel/lab.sh [--linux 6.1|6.12] [--shape dram+dram|dram+pmem|dram] [--debug] [--memory FAST[+SLOW]]
#     -- COMMAND…
#
#   --linux 6.12        Debian 13's kernel instead of Debian 12's (default: $LAB_LINUX, or 6.1)
#   --shape dram+dram   two DRAM nodes, the second without processors (default)
#   --shape dram+pmem   a DRAM node and a persistent-memory node: node 1, in a slower memory tier
#   --shape dram        one node
#   --debug             a kernel with KASAN, lockdep and the page-table checks
#   --memory 4G+4G      sizes of the nodes (one size for --shape dram)
#
# COMMAND's standard output, standard error and exit status are passed through; its standard input is
# empty. A warning, an oops, or a lockdep or KASAN report in the guest's log makes the status 1 where it
# would have been 0. Status 77: something needed is missing, and is named. 124: LAB_TIMEOUT passed.
# 125: the guest died before COMMAND ended, or could not be started.
#
# The root file system is this machine's, read-only under a layer that is thrown away. /var/tmp is a
# scratch ext4 on a disk of its own (8 GiB, O_DIRECT works).
#
# Environment, read here:
#   LAB_LINUX     see --linux
#   LAB_MIRROR    of Debian, for the source of 6.12 (default http://deb.debian.org/debian)
#   LAB_OUT       folder that the guest may write, at the same path (default: a temporary one)
#   LAB_LOG       where the guest's kernel log goes (default: a temporary file, kept if there is trouble)
#   LAB_TIMEOUT   seconds after which the guest is stopped (default: none)
#   LAB_ENV       names of further variables that COMMAND gets, separated by spaces; PATH, HOME, LANG and
#                 everything that begins with SENTINEL_ or LAB_ it gets anyway
#   LAB_CPUS      processors of the guest (default 2)
#   LAB_APPEND    more kernel parameters
#   LAB_ACCEL     tcg or kvm; default: kvm where a guest boots in it
#   LAB_JOBS      compilers at once (default: one a processor)
#   TMPDIR        where the guest's disks lie, which are sparse (default /tmp)
#   SENTINEL_CACHE         where built kernels are kept (default ~/.cache/sentinel)
#   SENTINEL_KERNEL_TREE   build incrementally from this already patched source tree instead of the
#                          source and patches of --linux; the tree itself is not written to
#   SENTINEL_KERNEL_IMAGE  boot this bzImage, whatever it was built from
# Environment, set in the guest:
#   LAB_OUT, LAB_SHAPE, SENTINEL_SWAP (a block device with a swap signature, not enabled), LAB_SELFTESTS
#   (the folder of the programs that come with the patches) and LAB_KERNEL (the folder with the vmlinux and
#   .config of the kernel that runs); both are empty with SENTINEL_KERNEL_IMAGE
# shellcheck source-path=SCRIPTDIR
set -Eeuo pipefail
trap 'echo "lab: failed at ${BASH_SOURCE[0]}:$LINENO" >&2' ERR

LAB_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/lab" && pwd)
KERNEL_DIR=$(dirname "$LAB_DIR")
readonly LAB_DIR KERNEL_DIR
readonly EXIT_MISSING=77 EXIT_TIMEOUT=124 EXIT_GUEST_DIED=125

# shellcheck source=lab/common.sh
source "$LAB_DIR/common.sh"
# shellcheck source=lab/source.sh
source "$LAB_DIR/source.sh"
# shellcheck source=lab/build.sh
source "$LAB_DIR/build.sh"
# shellcheck source=lab/boot.sh
source "$LAB_DIR/boot.sh"

usage() {
  sed -n '5,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

main() {
  local linux=${LAB_LINUX:-6.1} shape=dram+dram variant=plain memory='' status=0
  while [ $# -gt 0 ]; do
    case $1 in
      --linux) linux=${2-}; shift 2 || usage ;;
      --shape) shape=${2-}; shift 2 || usage ;;
      --memory) memory=${2-}; shift 2 || usage ;;
      --debug) variant=debug; shift ;;
      --) shift; break ;;
      *) usage ;;
    esac
  done
  [ $# -gt 0 ] || usage
  case $linux in 6.1 | 6.12) ;; *) usage ;; esac
  case $shape in
    dram+dram | dram+pmem) memory=${memory:-4G+4G}; [[ $memory =~ ^[0-9]+[MG]\+[0-9]+[MG]$ ]] || usage ;;
    dram) memory=${memory:-4G}; [[ $memory =~ ^[0-9]+[MG]$ ]] || usage ;;
    *) usage ;;
  esac

  require_guest_tools
  run_dir=$(mktemp -d "${TMPDIR:-/tmp}/sentinel-lab.XXXXXX")
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP

  build_kernel "$linux" "$variant" "$run_dir/bzImage"
  write_command "$shape" "$@"
  boot_guest "$shape" "$memory" "$run_dir/bzImage" || status=$?
  finish "$status"
}

main "$@"
