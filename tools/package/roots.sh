# shellcheck shell=bash
# Sourced by package.sh and check.sh: root file systems of Debian and Ubuntu, made once as an archive and unpacked for
# each use.

# make_root SUITE PLACE. SENTINEL_MIRROR is another mirror.
make_root() {
  local suite=$1 place=$2 scripts=/usr/share/debootstrap/scripts
  case $suite in
    noble)
      local how=()
      [ -e $scripts/noble ] || how=($scripts/gutsy)  # an older debootstrap knows the newer release by none
      debootstrap --variant=minbase --components=main,universe "$suite" "$place" \
        "${SENTINEL_MIRROR:-http://archive.ubuntu.com/ubuntu}" "${how[@]}" >&2 ;;
    *) debootstrap --variant=minbase "$suite" "$place" "${SENTINEL_MIRROR:-http://deb.debian.org/debian}" >&2 ;;
  esac
}

# enter_root SUITE PLACE: a root file system in PLACE, as it was left or a clean one, ready for in_root.
enter_root() {
  local suite=$1 place=$2 archive
  archive=$(dirname "$place")/$suite.tar
  if [ ! -e "$archive" ]; then
    mkdir -p "$(dirname "$place")"
    rm -rf "$place.new"
    make_root "$suite" "$place.new"
    tar -C "$place.new" -cf "$archive.new" .
    mv "$archive.new" "$archive"
    rm -rf "$place.new"
  fi
  if [ ! -e "$place/etc" ]; then
    mkdir -p "$place"
    tar -C "$place" -xf "$archive"
    # Some networks reach the mirror by these alone.
    cp /etc/resolv.conf "$place/etc/resolv.conf"
    [ ! -e /etc/apt/apt.conf ] || cp /etc/apt/apt.conf "$place/etc/apt/apt.conf"
  fi
  mount -t proc proc "$place/proc"
  mount -t devpts devpts "$place/dev/pts"
  mount -t tmpfs tmpfs "$place/dev/shm"
  in_root "$place" apt-get -qq update
}

# Whatever of it is mounted.
leave_root() {
  local inner
  for inner in dev/shm dev/pts proc; do
    if mountpoint -q "$1/$inner"; then umount "$1/$inner"; fi
  done
}

# in_root PLACE COMMAND...
in_root() {
  local place=$1
  shift
  chroot "$place" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
