"""What a plan needs before it is begun: models, texts, disk and hours. Reads no text, loads no model and fetches nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from toolformer.annotation import cost
from toolformer.data import FileCorpus, HubCorpus
from toolformer.jobs import corpora, instantiate
from toolformer.jobs.config import Config
from toolformer.jobs.job import Job
from toolformer.progress import size
from toolformer.results import Run
from toolformer.results.store import LATEST

LENGTH = 500
"""Tokens of a text, where its length is not known."""
SHARES = (0.1, 0.01)
"""Texts kept over texts tried, where they are not known."""
PER = 10_000
"""Texts for which the hours are given if their number is not known."""
CHECKPOINT, KEPT = 12, 4
"""Bytes per weight on disk: of a checkpoint to resume from (weights and Adam's two averages in fp32), and of weights alone."""
REFERENCE = "NVIDIA A100"
"""The GPU whose hours are given where the rate of this machine is not known."""
Finding = tuple[str, str, str]
"""Whether it is there (ok, --, no), part, and what was found."""


def estimate(jobs: Sequence[Job]) -> Iterator[Finding]:
    """Of jobs that are to be done."""
    yield from _models(jobs)
    yield from _texts(jobs)
    yield _disk(jobs)
    yield _hours(jobs)


def _models(jobs: Sequence[Job]) -> Iterator[Finding]:
    from toolformer.lm.loading import is_at_hand, parameters_at_hand

    for name, is_read in _names(jobs).items():
        count = parameters_at_hand(name)
        known = f"{_number(count)} weights, {size(2 * count)} in bfloat16" if count else "size not known"
        is_here = not is_read or is_at_hand(name)
        fetched = f"; not fetched yet{f', {size(KEPT * count)} at most' if count else ''}"
        yield "ok" if is_here else "--", "model", f"{name}: {known}{'' if is_here else fetched}"


def _names(jobs: Sequence[Job]) -> dict[str, bool]:
    """The models of the jobs, each with whether it is read: of a finished training only what it made is."""
    names: dict[str, bool] = {}
    for job in jobs:
        if job.stage != "report" and (name := _model(job, jobs)) != LATEST:
            names[name] = names.get(name, False) or not _finished(job)
    return names


def _model(job: Job, jobs: Sequence[Job]) -> str:
    """The model of a job; for one that reads a training, that which is trained."""
    training = job.sources.training
    if training is None:
        return job.sources.model or job.config.model
    planned = [other.config.model for other in jobs if other.step == training]
    run = _finished(job)
    return str(run.setting("model", Config().model)) if run else (planned or [job.config.model])[0]


def _finished(job: Job) -> Run | None:
    """The training that a job reads, if it is finished."""
    training = job.sources.training
    return instantiate.finished_results(job.config).find(training) if training else None


def _texts(jobs: Sequence[Job]) -> Iterator[Finding]:
    for config in _distinct(job.config for job in jobs if job.stage == "generate"):
        corpus, limit = corpora.corpus(config.corpus), config.corpus.limit
        text = corpora.corpus_name(config.corpus)
        if isinstance(corpus.source, FileCorpus):
            files = corpus.source.files()
            text += f": {len(files):,} file{'s' * (len(files) != 1)}, {size(sum(file.stat().st_size for file in files))}"
        elif isinstance(corpus.source, HubCorpus):
            text += ": a data set of the hub"
        count = f"{limit:,} texts at most" if limit else "texts are counted when they are read"
        yield "ok", "texts", f"{text}; {count}"


def _distinct(configs: Iterator[Config]) -> list[Config]:
    return [*{str(config.corpus): config for config in configs}.values()]


def _disk(jobs: Sequence[Job]) -> Finding:
    from toolformer.lm.loading import is_at_hand, parameters_at_hand

    root = Path(jobs[0].config.paths.root)
    free = shutil.disk_usage(next(path for path in (root, *root.parents) if path.exists())).free
    names = _names(jobs)
    sizes = {name: parameters_at_hand(name) or 0 for name in names}
    trained = [job.config for job in jobs if job.stage == "train" and job.config.model in sizes]
    kept = sum(KEPT * sizes[config.model] for config in trained)
    working = max(
        (max(0, _while_trained(config) - KEPT) * sizes[config.model] for config in trained),
        default=0,
    )
    fetched = sum(KEPT * sizes[name] for name, is_read in names.items() if is_read and not is_at_hand(name))
    parts = [
        f"{size(kept)} for {len(trained)} trained models" if trained else "",
        f"{size(working)} more while one is trained" if working else "",
        f"{size(fetched)} of models to fetch" if fetched else "",
        "less than 10 kB per text or question",
        f"{size(free)} free",
    ]
    unknown = "; models of unknown size are not counted" if not all(sizes.values()) else ""
    return (
        "ok" if kept + working + fetched <= free else "no",
        "disk",
        "; ".join(filter(None, parts)) + unknown,
    )


def _while_trained(config: Config) -> int:
    """Bytes of checkpoints per weight, at most: an old one is removed after a new one is written, never the best or the last."""
    trainer = config.trainer
    if trainer.lora_rank:  # adapters alone, which are small
        return 0
    is_resumed = trainer.save_every != 0 or trainer.deepspeed
    return (max(trainer.keep_checkpoints, 2) + 1) * (CHECKPOINT if is_resumed else KEPT)


def _hours(jobs: Sequence[Job]) -> Finding:
    name, count = device()
    rate = cost.rate(name)
    known = _computed(jobs, rate, count) if rate else _computed(jobs, cost.rate(REFERENCE) or 1, 1)
    text = "; ".join([*known, "evaluations are not computed, since they depend on the calls"])
    if rate:
        return "ok", "hours", f"computed for {count} x {name}: {text}"
    return (
        "--",
        "hours",
        f"unknown: the rate of this machine is not measured; computed for one {REFERENCE}: {text}",
    )


def device() -> tuple[str, int]:
    """The name of this machine's GPUs and their number."""
    import torch

    from toolformer.lm.devices import gpus

    return (torch.cuda.get_device_name(0), gpus()) if gpus() else ("", 0)


def _computed(jobs: Sequence[Job], rate: float, gpus: int) -> Iterator[str]:
    """Hours of each kind of stage, by docs/scaling.md's formula."""
    from toolformer.lm.loading import parameters_at_hand

    if any(parameters_at_hand(name) is None for name in _names(jobs)):
        yield "models of unknown size are not counted"
    annotations = [job.config for job in jobs if job.stage == "generate"]
    if annotations:
        yield f"annotations {_annotation_hours(annotations, rate, gpus)}, of texts of {LENGTH} tokens"
    trainings = [job.config for job in jobs if job.stage == "train"]
    if trainings and all(config.trainer.max_steps for config in trainings):
        together = (
            _training_operations(config) / min(gpus, _processes(config, gpus)) for config in trainings
        )
        yield f"trainings {_time(sum(together) / rate)} at most"
    elif trainings:
        yield "trainings depend on the number of kept texts (trainer.max_steps is null)"


def _annotation_hours(configs: Sequence[Config], rate: float, gpus: int) -> str:
    """Of each configuration, if every text is tried for every tool."""
    from toolformer.lm.loading import parameters_at_hand

    limits = {config.generate.limit_per_tool for config in configs}
    known = all(config.corpus.limit for config in configs)
    per_text = 0.0
    for config in configs:
        tools = [instantiate.tool_settings(config, key) for key in config.tools]
        tokens = sum(cost.tokens_per_text(tool, LENGTH) for tool in tools)
        workers = min(gpus, int(config.engine.workers))
        operations = cost.operations(parameters_at_hand(config.model) or 0, tokens)
        per_text += operations / rate / workers * ((config.corpus.limit or 0) if known else 1)
    if known:
        return f"{_time(per_text)} at most"
    if len(limits) == 1 and (limit := next(iter(limits))):
        parts = (
            f"{_time(limit / share * per_text)} if {100 * share:g} % of the tried texts are kept"
            for share in SHARES
        )
        return f"{' and '.join(parts)} ({limit:,} per tool)"
    return f"{_time(PER * per_text)} per {PER:,} texts at most"


def _training_operations(config: Config) -> float:
    from toolformer.lm.loading import parameters_at_hand

    trainer = config.trainer
    tokens = (trainer.max_steps or 0) * trainer.most_sequences * trainer.sequence_length
    return cost.training_operations(
        parameters_at_hand(config.model) or 0, tokens, trainer.gradient_checkpointing
    )


def _processes(config: Config, gpus: int) -> int:
    return gpus if config.trainer.processes == "auto" else int(config.trainer.processes)


def _time(seconds: float) -> str:
    hours = seconds / 3600
    if hours < 1:
        return "less than a minute" if seconds < 60 else f"{seconds / 60:.0f} minutes"
    return f"{hours:,.0f} h" if hours >= 10 else f"{hours:.1f} h"


def _number(count: float) -> str:
    return f"{count / 1e9:.3g} billion" if count >= 1e9 else f"{count / 1e6:.3g} million"
