#!/bin/sh
# The tables of docs/results: tests/bench/gpu_overlap.sh TRACES [BUILD] > docs/results/gpu-overlap-tables.md
# shellcheck disable=SC2086  # lists of words
# TRACES: the folder of G10's published traces. Virtual time: the same on every machine.
traces=$1 build=${2:-build} data=$(dirname "$0")/data
models="$data/optane/BERT.sentinel $data/optane/DCGAN.sentinel $data/optane/LSTM.sentinel $data/optane/MobileNet.sentinel
        $data/optane/ResNet.sentinel $data/resnet20-batch32.jsonl.gz $data/vgg16-batch2.jsonl.gz"
cat <<'END'
# Overlap on a GPU: all tables

`tests/bench/gpu_overlap.sh` writes this file, the same on every machine; [gpu-overlap.md](gpu-overlap.md) explains it.
Each table shows the step time of the engine in ms beside the bound, the least possible time and the plan.
END
for costs in "" "--per-chunk 45" "--per-chunk 45 --granule 16"; do
  printf '\n45 and 35 us a call%s\n\n' "${costs:+, $costs}"
  "$build"/bin/overlap_bench $costs "$traces"/BERT_Base-256.jsonl.gz "$traces"/BERT_Base-256-warm.jsonl.gz \
    "$traces"/ResNet152-1280.jsonl.gz "$traces"/ResNet152-1280-warm.jsonl.gz
  printf '\nThe same, --larger 16 --faster 500\n\n'
  "$build"/bin/overlap_bench $costs --larger 16 --faster 500 $models
done

printf '\nCalls that take no time\n\n'
"$build"/bin/overlap_bench --map 0 --unmap 0 "$traces"/ResNet152-1280-warm.jsonl.gz
printf '\nThe same, --larger 16 --faster 500\n\n'
"$build"/bin/overlap_bench --map 0 --unmap 0 --larger 16 --faster 500 "$data"/resnet20-batch32.jsonl.gz
printf '\n1000 and 30 us a call, as an H200 took beside copies both ways, --granule 16\n\n'
"$build"/bin/overlap_bench --map 1000 --unmap 30 --granule 16 "$traces"/BERT_Base-256-warm.jsonl.gz \
  "$traces"/ResNet152-1280-warm.jsonl.gz
printf '\nThe same, --larger 16 --faster 500\n\n'
"$build"/bin/overlap_bench --map 1000 --unmap 30 --granule 16 --larger 16 --faster 500 $models
