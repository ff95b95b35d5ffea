#!/usr/bin/env bash
# The main job on real input: trains a ResNet on handwritten digits plain, profiles a step, shows its
# heatmap, and trains again with a fifth of the memory. About five minutes on two cores.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
build sentinel sentinel_command torchplugin
sentinel=$root/build/bin/sentinel
python=${SENTINEL_PYTHON:-/usr/bin/python3}
out=$root/build/quickstart
mkdir -p "$out"
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
echo; echo "== Sentinel at 20 %"
"$sentinel" run --fast 20% --profile "$out/resnet.sentinel" --summary "$out/fifth-summary.json" -- "${train[@]}" --json "$out/fifth.json" | tail -n 1
echo
"$python" "$root/tools/compare_runs.py" "$out"
