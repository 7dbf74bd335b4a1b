#!/usr/bin/env bash
# Seven ways to feed a GPU. Usage: examples/gpu_pipeline_example.sh SCENARIO CORPUS [more flags of myxtts train]
#
#   default        one GPU, everything as it comes
#   larger-buffer  a disk that is slow at times: more batches ready in memory and on the device
#   multi-gpu      GPU 0 makes features, GPU 1 trains
#   multi-gpu-own  the same with settings of one's own: three GPUs train, the data GPU gets 5 s ahead
#   low-memory     little memory on GPU and host: small batches, short buffer, micro-steps that add up
#   fast-storage   features on a fast disk or in memory: large batches, no tuning needed
#   debugging      find out what is wrong: Python loads, no prefetch, no XLA, every operation by itself
#
# MYXTTS=... chooses another command than `myxtts`, e.g. MYXTTS="echo myxtts" to see what would run.
set -euo pipefail

scenario=${1:-help}
corpus=${2:-}
shift $(($# < 2 ? $# : 2))

train() {
  # shellcheck disable=SC2086
  ${MYXTTS:-myxtts} train --train-data "$corpus" --run-name "$scenario" "$@"
}

if [ "$scenario" != help ] && [ -z "$corpus" ]; then
  echo "Name the corpus: $0 $scenario CORPUS" >&2
  exit 2
fi

case $scenario in
  default)
    train "$@" ;;
  larger-buffer)
    train --buffer-size 100 --prefetch-buffer-size 4 "$@" ;;
  multi-gpu)
    train --preprocessing-mode on_the_fly --data-gpu 0 --model-gpu 1 "$@" ;;
  multi-gpu-own)
    train --preprocessing-mode on_the_fly --data-gpu 0 --model-gpu 1,2,3 --model-start-delay 5 \
      --buffer-size 80 --batch-size 48 "$@" ;;
  low-memory)
    train --batch-size 4 --buffer-size 4 --prefetch-buffer-size 1 --set data.ram_budget_gb=1 \
      --set training.gradient_accumulation_steps=4 "$@" ;;
  fast-storage)
    train --batch-size 64 --buffer-size 16 --set data.auto_tune_performance=false "$@" ;;
  debugging)
    train --preprocessing-mode on_the_fly --disable-tf-native-loading --disable-gpu-prefetch \
      --disable-cpu-gpu-overlap --optimization-level basic --set training.enable_eager_debug=true "$@" ;;
  *)
    sed -n '2,12p' "$0" | sed 's/^# \{0,1\}//'
    [ "$scenario" = help ] ;;
esac
