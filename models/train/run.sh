#!/usr/bin/env bash
# Makes models/default from the books: every step, on one GPU. The two trainings in it took 260
# and 251 seconds on an H100, without the minute that torch.compile may take at first.
#
#     models/train/run.sh corpus.tar.xz [WORK]      WORK: a folder for what comes between
#
# Python needs torch, numpy and tokenizers (PYTHON names another than python3).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
corpus=$1
work=${2:-build/model}
python=${PYTHON:-python3}

# What models/default was trained with; its README has the reasons.
recipe=(--tokens 264e6 --dropout 0.2 --weight-decay 0.1 --decay-share 0.45 --seed 1 --compile)

step() { "$python" "$here/$1.py" "${@:2}"; }

step prepare "$corpus" "$work/data"

# Without three books first, to know how good the recipe is on text that the model has not seen.
step train "$work/data" "$work/held-out" --held-out "${recipe[@]}"
step export "$work/held-out/checkpoint.safetensors" "$work/data" "$work/held-out/export"
step evaluate "$work/data" "$work/held-out/checkpoint.safetensors"
step evaluate "$work/data" "$work/held-out/export"

step train "$work/data" "$work/all" --all "${recipe[@]}"
step export "$work/all/checkpoint.safetensors" "$work/data" "$here/../default"
