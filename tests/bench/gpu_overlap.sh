#!/bin/sh
# The table of data/gpu-overlap.md: tests/bench/gpu_overlap.sh TRACES [BUILD] > tests/bench/data/gpu-overlap.md
# TRACES: the folder of the published traces (README.md). Virtual time: the same on every machine.
traces=$1 build=${2:-build} data=$(dirname "$0")/data
models="$data/optane/BERT.sentinel $data/optane/DCGAN.sentinel $data/optane/LSTM.sentinel $data/optane/MobileNet.sentinel
        $data/optane/ResNet.sentinel $data/resnet20-batch32.jsonl.gz $data/vgg16-batch2.jsonl.gz"
for costs in "" "--per-chunk 45" "--per-chunk 45 --granule 16"; do
  printf '\n45 and 35 us a call%s\n\n' "${costs:+, $costs}"
  "$build"/bin/overlap_bench $costs "$traces"/BERT_Base-256.jsonl.gz "$traces"/BERT_Base-256-warm.jsonl.gz \
    "$traces"/ResNet152-1280.jsonl.gz "$traces"/ResNet152-1280-warm.jsonl.gz
  printf '\nThe same, --larger 16 --faster 500\n\n'
  "$build"/bin/overlap_bench $costs --larger 16 --faster 500 $models
done
