#!/usr/bin/env bash
# 430 seconds more, when first.sh is over: two models beside plain PyTorch in chunks of the size that was better there,
# a largest batch, programs that fork, run out of memory and end a stream, and the memory checker. Where pools fail,
# `second.sh FOLDER --gpu-memory managed` measures the same in managed memory.
#
#   tests/gpu/second.sh [FOLDER] [OPTIONS of steps.py...]
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/device.sh"

part 55 build "$gpu/build.sh"
granule=$(python3 "$gpu/table.py" --granule "$results/results.json")
steps 190 "two models" --steps training --models BERT-large,ViT --shares 40 --granules "$granule" --no-techniques
steps 75 "a largest batch" --steps largest --largest BERT-large
steps 70 "programs" --steps torch_test --cases one_op_for_all_weights,out_of_memory,forked,a_stream_that_ends
steps 40 "the memory checker" --steps memcheck
