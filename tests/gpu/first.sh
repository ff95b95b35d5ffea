#!/usr/bin/env bash
# The first 270 seconds on a GPU: whether it works, what the driver's calls cost, and one model in 40 % of its memory, in
# chunks of 2 and 16 MiB. Each part ends in its time and keeps no other from being run; a second call goes on.
#
#   tests/gpu/first.sh [FOLDER] [OPTIONS of steps.py...]
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/device.sh"

part 5 machine bash -c 'nvidia-smi; nvidia-smi -q -d PCIE | grep -A2 "Link Width\|Generation"; free -g; ulimit -a; nproc'
"$gpu/touch_memory.py" "${SENTINEL_TOUCH_GIB:-48}" >"$build/gpu-touch.log" 2>&1 & # beside the build
touching=$!
part 55 build "$gpu/build.sh"
part 10 "the host's memory" tail --pid=$touching -s 0.2 -n +1 -f "$build/gpu-touch.log"
steps 25 "tests of the device" --steps gpu_device_test
steps 35 "one program" --steps torch_test --cases straight
steps 95 "one model" --steps training --models BERT-large --shares 40 --granules 2M,16M --no-techniques --each 45 \
  --only "Sentinel 40 %;Sentinel 40 %, chunks of 16M"
steps 30 "mapping" --steps vmm_probe
steps 15 "movement" --steps movement
