#!/usr/bin/env bash
# The speed of annotation, decoding and training on one GPU, with the bundled model and with the same model widened.
#
#     scripts/gpu_bars.sh [FOLDER] [SECONDS]
#
# Runs the tests that need a GPU (answers and gains equal those of a CPU), then the speed scripts, each for at most SECONDS
# (300). Each warms up, measures, and ends with one line of JSON. The bars of the widened model come last. FOLDER (gpu_bars)
# collects the output of each and all results in results.txt. On an H100 or H200
# everything takes about a quarter of an hour. SMALL=1 runs each script with almost nothing, which also works on a CPU.
set -u
cd "$(dirname "$0")/.."
folder=${1:-gpu_bars} seconds=${2:-300}
python=${PYTHON:-.venv/bin/python}
mkdir -p "$folder"
: > "$folder/results.txt"

if [ "${SMALL:-}" ]; then
    wide="model=smollm2 factor=1 layers=31" names="wide"
    annotate="documents=1 k=1 m=1 reference=1 tools=calendar"
    decode="prompts=2 batch=2 new_tokens=2 tools=calendar turns=1"
    train="documents=2 sequence_length=64 micro_batch=1" batches=256
    overhead="texts=1 k=2 m=2 call_tokens=3 prompts=2 batch=2 new_tokens=2 repeats=1"
else
    wide="model=smollm2 factor=4 layers=30" names="narrow wide" overhead=""
    annotate="documents=256 tools=calculator,calendar dtype=bfloat16 reference=1"
    decode="prompts=2048 batch=256 dtype=bfloat16"
    train="documents=512 sequence_length=1024 micro_batch=8" batches=16384,65536
fi

measure() { # NAME COMMAND...: runs a command and notes its last line
    echo "== $1: ${*:2}"
    timeout "$seconds" "${@:2}" > "$folder/$1.txt" 2> "$folder/$1.log"
    local rc=$?
    [ $rc = 0 ] || echo "$1: exit code $rc; see $folder/$1.log" | tee -a "$folder/results.txt"
    [ $rc != 0 ] || echo "$1 $(tail -n 1 "$folder/$1.txt")" | tee -a "$folder/results.txt"
}

bar() { # SCRIPT MEASURE LEAST: a result of the wide model, from the last line or the toolformer rows of its table
    "$python" - "$folder/$1-wide.txt" "$1" "$2" "$3" << 'END' | tee -a "$folder/results.txt"
import json, sys
path, script, measure, least = sys.argv[1:]
try:
    lines = open(path).read().splitlines()
    value = json.loads(lines[-1]).get(measure)
    head = next((line for line in lines if measure in line.split()), "").split()
    if head:  # columns from the right: names of rows contain blanks
        column = head.index(measure) - len(head)
        value = max(float(line.split()[column]) for line in lines if line.startswith("toolformer"))
except (OSError, ValueError, IndexError):
    value = None
print(f"bar: {script} {measure} {'not measured' if value is None else value}, at least {least}")
END
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null | tee -a "$folder/results.txt"
measure equality "$python" -m pytest -q -p no:cacheprovider tests/test_gpu.py
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
# shellcheck disable=SC2086
measure overhead "$python" -m benchmarks.speed.overhead $overhead
bar annotate documents/s 15
bar annotate gpu_busy 0.7
bar annotate score_share_of_matmul_peak 0.4
bar decode tokens/s 12000
bar decode share_of_plain_generate 1
bar train train_share_of_matmul_peak 0.5
cat "$folder/results.txt"
