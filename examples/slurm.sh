#!/bin/bash
# Two stages on Slurm: every GPU of the job annotates, then the GPUs of one node train.
#     MODEL=/shared/models/MODEL CORPUS=/shared/corpus.jsonl SHARED=/shared/me sbatch examples/slurm.sh
# Preempted, out of time or cancelled? The same job again (Slurm requeues a preempted one by itself) does only what is missing:
# finished shards are kept, and training resumes from its last checkpoint.
#SBATCH --job-name=toolformer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

GPUS=${GPUS:-4}                      # of a node, as in --gpus-per-node
: "${MODEL:?name a model folder that all nodes see}"
: "${CORPUS:?name a JSON Lines file that all nodes see}"
: "${SHARED:?name a folder that all nodes see, on a file system with locks (docs/scaling.md)}"
export TOOLFORMER_RUNS=$SHARED/runs TOOLFORMER_CACHE=$SHARED/cache
export HF_HUB_OFFLINE=1              # before, where there is a network: TOOLFORMER_CACHE=$SHARED/cache toolformer assets

# A process per node with a worker per GPU. Whoever is free claims the next shard, so nodes may be slow, late or lost.
srun toolformer generate name=slurm model="$MODEL" corpus=jsonl corpus.path="$CORPUS" \
    generate.shard_size=64 engine.workers=auto

# M + CC, the paper's control, is the same training with data=plain. ZeRO needs `make setup EXTRA=deepspeed`. batch_size is a multiple of micro_batch_size x GPUS.
srun --nodes=1 --ntasks=1 toolformer train name=slurm model="$MODEL" trainer.processes="$GPUS" \
    trainer.deepspeed=zero2 trainer.batch_size=32 trainer.micro_batch_size=2 trainer.sequence_length=1024 \
    trainer.gradient_checkpointing=true trainer.save_every=20
