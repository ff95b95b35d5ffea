# shellcheck shell=bash
# Sourced by lab.sh: the kernel, from Debian's source and the patches for it, or from a developer's tree.
#
# A built kernel lies in the cache under the hash of everything that went into it, so it is built once
# for each set of patches, configuration, compiler and linker.

KEPT_KERNELS=6

# build_kernel 6.1|6.12 plain|debug IMAGE: copies the kernel to the file IMAGE, and leaves in kernel_folder where its
# vmlinux and .config are and in selftests where its programs are; empty for an image that was given.
build_kernel() {
  local variant=$2 image=$3
  KERNEL_LINUX=$1
  mkdir -p "$KERNEL_CACHE"
  if [ -n "${SENTINEL_KERNEL_IMAGE:-}" ]; then
    cp "$SENTINEL_KERNEL_IMAGE" "$image"
  elif [ -n "${SENTINEL_KERNEL_TREE:-}" ]; then
    build_from_tree "$SENTINEL_KERNEL_TREE" "$variant" "$image"
  else
    use_linux
    build_from_patches "$variant" "$image"
  fi
}

# One build at a time in one place; who waits finds the other's result.
lock() {
  exec 9>"$1"
  flock --nonblock 9 && return 0
  say "waiting for another build"
  flock 9 &
  wait $!
}
unlock() { exec 9>&-; }

build_from_tree() {
  local tree variant=$2 image=$3 objects
  tree=$(cd "$1" && pwd)
  require_build_tools
  objects=$KERNEL_CACHE/trees/$(hash_text "$tree")-$variant
  mkdir -p "$objects"
  lock "$objects.lock"
  configure "$tree" "$objects" "$variant"
  compile "$tree" "$objects"
  build_selftests "$tree" "$objects/selftests"
  cp "$objects/arch/x86/boot/bzImage" "$image"
  selftests=$objects/selftests
  kernel_folder=$objects
  unlock
}

build_from_patches() {
  local variant=$1 image=$2 key kept
  require build-essential gcc ld
  stop_if_missing
  key=$(kernel_key "$variant")
  kept=$KERNEL_CACHE/$key
  if [ ! -e "$kept/bzImage" ]; then
    require_build_tools
    lock "$KERNEL_CACHE/build.lock"
    [ -e "$kept/bzImage" ] || build_into_cache "$variant" "$kept"
    unlock
  fi
  touch "$kept"
  cp "$kept/bzImage" "$image"
  # shellcheck disable=SC2034  # for whoever sources this
  selftests=$kept/selftests
  # shellcheck disable=SC2034
  kernel_folder=$kept
  prune_kernels
}

# An interrupted build of the same kernel is continued.
build_into_cache() {
  local variant=$1 kept=$2 tree=$KERNEL_CACHE/build
  say "building the $variant kernel (minutes, once)"
  if [ "$(cat "$tree/lab.kernel" 2>/dev/null)" != "$kept" ]; then
    unpack_source "$tree"
    echo "$kept" >"$tree/lab.kernel"
  fi
  configure "$tree" "$tree/objects" "$variant"
  compile "$tree" "$tree/objects"
  rm -rf "$kept.new"
  mkdir "$kept.new"
  build_selftests "$tree" "$kept.new/selftests"
  cp "$tree/objects"/{.config,System.map,vmlinux} "$tree/objects/arch/x86/boot/bzImage" "$kept.new/"
  mv "$kept.new" "$kept"
  rm -rf "$tree"
}

# The programs that the patches bring to test the kernel, for LAB_SELFTESTS in the guest.
build_selftests() {
  local source=$1/tools/testing/selftests/sentinel to=$2
  mkdir -p "$to/include/linux"
  [ -d "$source" ] || return 0
  cp "$1/include/uapi/linux/sentinel.h" "$to/include/linux/"
  make -s -C "$source" OUTPUT="$to" KHDR_INCLUDES="-I$to/include" >&2 ||
    die "the selftests do not build" 1
}

# Objects below the source: its path is then ".." in every compile, and ccache hits across trees.
unpack_source() {
  local tree=$1
  rm -rf "$tree"
  mkdir -p "$tree/objects"
  tar -xf "$KERNEL_TARBALL" -C "$tree" --strip-components=1
  apply_patches "$tree"
}

# In numeric order, without fuzz: a patch that no longer fits exactly has to be looked at.
apply_patches() {
  local tree=$1 patch
  while IFS= read -r patch; do
    patch -d "$tree" -p1 --batch --fuzz=0 --silent <"$patch" >&2 || die "$(basename "$patch") does not apply" 1
  done < <(list_patches)
}

# What to ask of the configuration of a tree, in the order in which it is merged.
fragments() {
  echo "$KERNEL_DIR/config/base.config" "$KERNEL_DIR/config/$KERNEL_LINUX.config"
  [ "$1" = debug ] && echo "$KERNEL_DIR/config/debug.config"
  return 0
}

# The functions that decide what is built count with its inputs.
kernel_key() {
  {
    stat -c '%s %Y' "$KERNEL_TARBALL"
    gcc --version
    ld --version
    fragments "$1" | xargs cat "$KERNEL_DIR/config/sentinel.config"
    list_patches | xargs -r cat
    declare -f unpack_source apply_patches configure known_options compile build_selftests
  } | hash_stream
}

hash_stream() { sha256sum | cut -c1-20; }
hash_text() { printf %s "$1" | hash_stream; }

prune_kernels() {
  local old
  find "$KERNEL_CACHE" -mindepth 2 -maxdepth 2 -name bzImage -printf '%h\n' | xargs -r stat -c '%Y %n' |
    sort -rn | tail -n +$((KEPT_KERNELS + 1)) | while read -r _ old; do rm -rf "$old"; done
}

require_build_tools() {
  require build-essential gcc make ld
  require flex flex
  require bison bison
  require bc bc
  require xz-utils xz
  require patch patch
  require libelf-dev /usr/include/gelf.h
  stop_if_missing
}

# Configures OBJECTS unless that was done from the same fragments and the same Kconfig files.
configure() {
  local tree=$1 objects=$2 variant=$3 stamp
  stamp=$(configuration_stamp "$tree" "$variant")
  if [ -e "$objects/.config" ] && [ "$(cat "$objects/lab.stamp" 2>/dev/null)" = "$stamp" ]; then return 0; fi
  fragments "$variant" | xargs cat >"$objects/lab.config"
  known_options "$tree" <"$KERNEL_DIR/config/sentinel.config" >>"$objects/lab.config"
  (cd "$tree" && KCONFIG_CONFIG=$objects/.config nice scripts/kconfig/merge_config.sh -n -O "$objects" \
    kernel/configs/tiny.config "$objects/lab.config") >"$objects/lab-configure.log" 2>&1 ||
    { cat "$objects/lab-configure.log" >&2; die "cannot configure the kernel" 1; }
  check_options "$objects/lab.config" "$objects/.config"
  echo "$stamp" >"$objects/lab.stamp"
}

configuration_stamp() {
  {
    fragments "$2" | xargs cat "$KERNEL_DIR/config/sentinel.config"
    find "$1" -name 'Kconfig*' -type f -printf '%p %T@\n' | sort
    declare -f configure known_options
  } | hash_stream
}

# Passes on those options of standard input that TREE defines.
known_options() {
  local tree=$1 line name
  while IFS= read -r line; do
    name=${line%%=*}
    [[ $line == CONFIG_* ]] || continue
    grep -rqE --include='Kconfig*' "^(menu)?config ${name#CONFIG_}\$" "$tree" && echo "$line"
  done
  return 0
}

# check_options ASKED TAKEN: ends the script naming each option of ASKED (the last word on it counts)
# that TAKEN does not have: its name is wrong, or something that it depends on is off.
check_options() {
  local refused
  refused=$(awk '
    function name_of(line) { sub(/^# /, "", line); sub(/[= ].*/, "", line); return line }
    !/^CONFIG_|^# CONFIG_[A-Z0-9_]+ is not set/ { next }
    FNR == NR { asked[name_of($0)] = $0; next }
    { taken[name_of($0)] = $0 }
    END { for (name in asked) {
            off = asked[name] ~ /^#/
            if (off ? taken[name] ~ /^CONFIG/ : taken[name] != asked[name]) print "  " asked[name] } }
  ' "$1" "$2" | sort)
  [ -z "$refused" ] && return 0
  say "the kernel's configuration did not take:"
  echo "$refused" >&2
  exit 1
}

# In the background, so that a signal to this script is acted on at once.
compile() {
  local tree=$1 objects=$2 compiler=gcc
  if command -v ccache >/dev/null; then compiler="ccache gcc"; fi
  setpriv --pdeathsig TERM nice make -s -C "$tree" O="$objects" CC="$compiler" HOSTCC="$compiler" \
    KBUILD_BUILD_USER=lab KBUILD_BUILD_HOST=sentinel "-j${LAB_JOBS:-$(nproc)}" bzImage >&2 &
  build_pid=$!
  wait "$build_pid" || die "the kernel does not build" 1
  build_pid=
}
