"""Inputs of a stage: the names in its configuration (`latest`, a run's id, a folder, A+B) become steps, here and
nowhere else.

An experiment's job reads what the same configuration makes in the earlier jobs of its plan; any other reads finished runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolformer.decoding.settings import PAPER_SYSTEMS, SYSTEMS, trained_on
from toolformer.errors import UserError
from toolformer.jobs import steps
from toolformer.jobs.config import Config, effective
from toolformer.jobs.config.effective import keeps_by_chance
from toolformer.jobs.job import Job, Sources
from toolformer.results import Results, Run
from toolformer.results.store import LATEST
from toolformer.step import Step


def resolve(stage: str, config: Config, planned: Sequence[Job], results: Results) -> Sources:
    """The steps that a stage reads.

    Args:
        config: as composed and valid.
        planned: jobs of the same plan, whose results will be there when this one is performed.

    UserError if a run that is named is not there, is of other data or of another model, or is named twice.
    """
    if stage == "train":
        return Sources(annotations=_annotations(config, planned, results), model=config.model)
    if stage == "evaluate":
        training = _training(config, planned, results)
        texts = _annotations_for_heldout(config, training, planned, results)
        return Sources(texts, training, "" if training else model_of(config))
    return Sources(model=config.model)


def named(stage: str, reference: str, config: Config, results: Results, **facts: Any) -> Run:
    """The finished run that a reference names: an id, its first characters, `latest` or `latest:SYSTEM`.

    `latest` is the newest of the configuration's name and seed, with these facts.

    UserError if there is none, or it is of another stage or version of the code.
    """
    seed = config.seed
    if stage == "generate" and not keeps_by_chance(config):  # as `Run.seed` has it
        seed = config.sampling_seed
    return results.resolve(stage, reference, config.name, seed, **facts)


def explained(reference: str, config: Config, results: Results) -> Run:
    """The evaluation of Toolformer or the annotation that a reference names; `latest:generate` is the newest annotation."""
    if reference == f"{LATEST}:generate":
        return named("generate", LATEST, config, results)
    if reference == LATEST:
        return named("evaluate", f"{LATEST}:toolformer", config, results)
    stages = {run.stage for run in results.all_runs() if run.id.startswith(reference)}
    run = named("generate" if stages == {"generate"} else "evaluate", reference, config, results)
    if run.stage == "evaluate" and run.facts.get("system") != "toolformer":
        raise UserError(
            f"explain: oracle conditions need system=toolformer, but this run has system={run.facts.get('system')}; name another"
        )
    return run


def named_training(config: Config, results: Results) -> Run | None:
    """The training that `checkpoint` names; None for a system without one, or with another trainer's model.

    UserError if there is none, it was trained on other data, or from another model than the one that was named.
    """
    data = trained_on(config.system)
    if not data or _is_model_folder(config.checkpoint):
        return None
    reference = LATEST if config.model == LATEST else config.checkpoint
    facts: dict[str, Any] = {"data": data} if reference == LATEST else {}
    run = named("train", reference, config, results, **facts)
    if run.facts.get("data") != data:
        raise UserError(
            f"checkpoint: run {run.id[:8]} has data={run.facts.get('data')}; name one with data={data}"
        )
    base = str(run.setting("model", config.model))
    if config.model in (LATEST, Config().model) or _is_same_path(base, config.model):
        return run
    raise UserError(
        f"model={config.model}: checkpoint {run.id[:8]} was trained from {base}; give model={base}, or a training of {config.model} as "
        f"checkpoint=RUN (toolformer train model={config.model} makes one)"
    )


def model_of(config: Config) -> str:
    """The model of a system that no training of ours made: `model`, or another trainer's folder in `checkpoint`."""
    is_other = trained_on(config.system) and _is_model_folder(config.checkpoint)
    return str(Path(config.checkpoint).expanduser()) if is_other else config.model


def _training(config: Config, planned: Sequence[Job], results: Results) -> Step | None:
    data = trained_on(config.system)
    if data and config.checkpoint == LATEST:
        if step := _planned("train", replace(config, data=data), planned, results):
            return step
        trained = {job.config.data for job in planned if job.stage == "train"}
        if trained and data not in trained:  # an older training may be of other texts
            others = ",".join(name for name in PAPER_SYSTEMS if SYSTEMS[name].trained_on != data)
            raise UserError(
                f"run: system={config.system} reads a training with data={data}, which this sweep leaves out; "
                f"add system={others}, or add {data} to data="
            )
    run = named_training(config, results)
    return run.step if run else None


def _annotations(config: Config, planned: Sequence[Job], results: Results) -> tuple[Step, ...]:
    """Those that `dataset` names."""
    if config.dataset == LATEST and (step := _planned("generate", config, planned, results)):
        return (step,)
    runs = [named("generate", reference, config, results) for reference in config.dataset.split("+")]
    if len({run.id for run in runs}) < len(runs):
        raise UserError(f"dataset: {config.dataset} names a run twice; name each annotation once")
    return tuple(run.step for run in runs)


def _annotations_for_heldout(
    config: Config, training: Step | None, planned: Sequence[Job], results: Results
) -> tuple[Step, ...]:
    """Those whose held-out texts an evaluation reads: its training's, else those that `dataset` names.

    None where it reads other texts, or there is no annotation yet: then the texts come from the configured corpus.
    """
    if config.heldout.source or not steps.reads_heldout(config):
        return ()
    if training:
        return tuple(training.find_all("generate"))
    if config.dataset == LATEST:
        if step := _planned("generate", config, planned, results):
            return (step,)
        if not results.runs("generate", config.name):
            return ()
    return _annotations(config, (), results)


def _planned(stage: str, config: Config, planned: Sequence[Job], results: Results) -> Step | None:
    """The step of the planned job of an earlier stage with the same configuration, if there is one."""
    if not any(job.stage == stage for job in planned):
        return None
    step = steps.step_of(stage, effective(config, stage), resolve(stage, config, planned, results))
    return step if any(job.step == step for job in planned) else None


def _is_model_folder(name: str) -> bool:
    return (Path(name).expanduser() / "config.json").is_file()


def _is_same_path(first: str, second: str) -> bool:
    return Path(first).expanduser().resolve() == Path(second).expanduser().resolve()
