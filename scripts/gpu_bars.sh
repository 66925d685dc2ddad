#!/usr/bin/env bash
# The speed of annotation, decoding and training on one GPU, with the bundled model and with the same model widened.
#
#     scripts/gpu_bars.sh [FOLDER] [SECONDS]
#
# Runs the tests that need a GPU, then the speed scripts, each for at most SECONDS (300). Each warms up, measures, and ends
# with one line of JSON; FOLDER (gpu_bars) collects the output of each and all results in results.txt. On an H100 or H200
# everything takes about a quarter of an hour. SMALL=1 runs each script with almost nothing, which also works on a CPU.
set -u
cd "$(dirname "$0")/.."
folder=${1:-gpu_bars} seconds=${2:-300}
python=${PYTHON:-.venv/bin/python}
mkdir -p "$folder"
: > "$folder/results.txt"

if [ "${SMALL:-}" ]; then
    wide="model=smollm2 factor=1 layers=31" names="wide"
    annotate="documents=2 k=2 m=2 reference=1 tools=calendar" decode="prompts=4 batch=2 new_tokens=2 tools=calendar"
    train="documents=2 sequence_length=64 micro_batch=1" batches=256
else
    wide="model=smollm2 factor=4 layers=30" names="narrow wide"
    annotate="documents=256 tools=calculator,calendar dtype=bfloat16 reference=1" decode="prompts=2048 batch=256"
    train="documents=512 sequence_length=1024 micro_batch=8" batches=16384,65536
fi

measure() { # NAME COMMAND...: runs a command and notes its last line
    echo "== $1: ${*:2}"
    timeout "$seconds" "${@:2}" > "$folder/$1.txt" 2> "$folder/$1.log"
    local rc=$?
    [ $rc = 0 ] || echo "$1: exit code $rc; see $folder/$1.log" | tee -a "$folder/results.txt"
    [ $rc != 0 ] || echo "$1 $(tail -n 1 "$folder/$1.txt")" | tee -a "$folder/results.txt"
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null | tee -a "$folder/results.txt"
measure tests "$python" -m pytest -q tests/test_gpu.py
# shellcheck disable=SC2086
measure widen "$python" -m benchmarks.speed.widen $wide "$folder/wide"
for name in $names; do
    [ "$name" = narrow ] && model=smollm2 || model=$folder/wide
    # shellcheck disable=SC2086
    {
        measure "annotate-$name" "$python" -m benchmarks.speed.annotate "model=$model" batch_tokens=$batches $annotate
        measure "decode-$name" "$python" -m benchmarks.speed.decode "model=$model" $decode
        measure "train-$name" "$python" -m benchmarks.speed.train "model=$model" $train
    }
done
measure overhead "$python" -m benchmarks.speed.overhead
cat "$folder/results.txt"
