#!/usr/bin/env bash
# package.sh bookworm|trixie|noble [FOLDER]
# Makes a .deb for that release of Debian, or for Ubuntu 24.04, in dist/: in a root file system of its own that
# debootstrap makes in FOLDER (default /var/tmp/sentinel-roots), with the packages that the build asks for. Needs root,
# debootstrap, and a mirror; SENTINEL_MIRROR names another one. DEBEMAIL is the maintainer's address (default: git's).
# tools/package/check.sh tries the result in a clean root.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
suite=${1:?bookworm, trixie or noble}
roots=${2:-/var/tmp/sentinel-roots}
# shellcheck source=tools/package/roots.sh
source "$root/tools/package/roots.sh"

case $suite in
  bookworm) release=deb12 solvers="coinor-libcbc3, coinor-libclp1" torch="libtorch-dev, python3-torch," ;;
  trixie) release=deb13 solvers="coinor-libcbc3.1, coinor-libclp1" torch="libtorch-dev, python3-torch," ;;
  noble) release=ubuntu24.04 solvers="coinor-libcbc3.1, coinor-libclp1, g++" torch= ;;  # it has no PyTorch of its own
  *) echo "no package is made for $suite: bookworm, trixie or noble" >&2; exit 64 ;;
esac
version=$(sed -n 's/^project(sentinel VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")+$release

place=$roots/$suite-build
trap 'leave_root "$place"' EXIT
enter_root "$suite" "$place"
tree=$place/src/sentinel-hm-$version
rm -rf "$tree"
mkdir -p "$tree" "$place/ccache"
git -C "$root" ls-files -z -- . ':!tests' ':!docs' ':!kernel/patches*' | (cd "$root" && xargs -0 cp --parents -t "$tree")
cp -r "$root/tools/package/debian" "$tree/debian"
# The project has no address of its own: a package is from who builds it.
mail=${DEBEMAIL:-$(git -C "$root" config user.email)}
sed -i -e "s/@SOLVERS@/$solvers/" -e "s/@TORCH@/$torch/" -e "s/@MAIL@/$mail/" "$tree/debian/control"
sed -e "s/@MAIL@/$mail/" -e "s/@VERSION@/$version/" -e "s/@SUITE@/$suite/" -e "s/@DATE@/$(git -C "$root" log -1 --format=%aD)/" \
  "$tree/debian/changelog.in" >"$tree/debian/changelog"
rm "$tree/debian/changelog.in"

in_root "$place" apt-get -qq install -y --no-install-recommends build-essential ccache lintian fakeroot >/dev/null
in_root "$place" apt-get -qq build-dep -y --no-install-recommends "/src/sentinel-hm-$version" >/dev/null
in_root "$place" sh -c "cd /src/sentinel-hm-$version && CCACHE_DIR=/ccache dpkg-buildpackage -b -us -uc -j${JOBS:-2}"
in_root "$place" sh -c "cd /src && lintian --allow-root --fail-on error --no-tag-display-limit sentinel-hm_${version}_amd64.changes"
mkdir -p "$root/dist"
cp "$place/src/sentinel-hm_${version}_amd64.deb" "$root/dist/"
echo "$root/dist/sentinel-hm_${version}_amd64.deb"
