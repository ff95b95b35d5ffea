#!/usr/bin/env bash
# The main job on real input: trains a ResNet on handwritten digits plain, profiles a step, shows its
# heatmap, and trains again with a fifth of the memory. About five minutes on two cores, after the build.
#
# PyTorch is the newest that the tests know, in an environment of its own below ~/.cache/sentinel. Where pip reaches no
# index it is Debian's; where SENTINEL_PYTHON names a Python, that one's.
cat <<'END'
This installs the packages of tools/packages.txt that are missing (as root; otherwise it names them) and writes to
build/. In ~/.cache/sentinel it keeps an adaptor, the disk's measured speed and a Python environment (1 to 5 GB). pip and
ccache keep what they download and compile in their own caches. While it trains, tensors lie in /var/tmp. Where pip
reaches no package index, it installs the packages of tools/packages-torch.txt instead of that environment.
END
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
out=$root/build/quickstart
mkdir -p "$out"

# Sets `python`.
choose_python() {
  python=${SENTINEL_PYTHON:-}
  [ -n "$python" ] && return 0
  local status=0
  python=$(bash tests/framework-env.sh torch2) || status=$?
  [ "$status" -eq 0 ] && return 0
  [ "$status" -eq 69 ] || exit "$status"  # pip has said what is wrong
  echo "pip reaches no package index: Debian's PyTorch is used"
  install_packages tools/packages-torch.txt
  python=/usr/bin/python3
}

echo; echo "== PyTorch"
choose_python
"$python" -c 'import sys, torch; print(torch.__version__, "of", sys.executable)'
# A wheel brings its own BLAS.
case $("$python" -c 'import torch; print(torch.__file__)') in /usr/lib/python3/*) own_blas ;; esac
echo; echo "== Building"
build sentinel sentinel_command
sentinel=$root/build/bin/sentinel
train=("$python" "$root/tests/workloads/resnet_cifar.py" --depth 110 --batch 128 --steps "${STEPS:-10}")

echo; echo "== Plain PyTorch"
"${train[@]}" --json "$out/plain.json" | tail -n 2
echo; echo "== Profiling one step"
"$sentinel" record -o "$out/resnet.sentinel" -- "${train[@]}" | tail -n 1
"$sentinel" report "$out/resnet.sentinel" summary
"$sentinel" report "$out/resnet.sentinel" heatmap
"$sentinel" report "$out/resnet.sentinel" heatmap --format html > "$out/heatmap.html"
echo "The same in a browser: $out/heatmap.html"
echo; echo "== Measuring the disk"
"$sentinel" bench --tiers
echo; echo "== Sentinel, unlimited memory"
"$sentinel" run --summary "$out/unlimited-summary.json" -- "${train[@]}" --json "$out/unlimited.json" | tail -n 1
echo; echo "== Sentinel at 20 % (\`$sentinel top\` in another terminal shows it live)"
"$sentinel" run --fast 20% --profile "$out/resnet.sentinel" --summary "$out/fifth-summary.json" -- "${train[@]}" --json "$out/fifth.json" | tail -n 1
echo
"$python" "$root/tools/compare_runs.py" "$out"
