"""Stage 3: benchmarks with one of the systems (paper, section 4).

    model                 M, as it is
    model_cc              M + CC: finetuned on C, the texts without calls
    toolformer_disabled   finetuned on C*, the start token forbidden
    toolformer            finetuned on C*, with its tools
    prompted              M, shown examples of calls in its context, with the same tools
    baseline              any other model, as it is: the paper's larger ones

Tasks, data, samples and tools are checked before a model is loaded. Answers are written batch by batch: an interrupted
evaluation asks only for the missing ones.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.data import Document
from toolformer.jobs import engine, instantiate, steps
from toolformer.jobs.config import Config
from toolformer.jobs.engine import answering
from toolformer.jobs.engine.answering import Questions
from toolformer.jobs.evaluation import ANSWERS, Evaluation, first_day, prepare
from toolformer.jobs.generate import read_heldout
from toolformer.jobs.invocation import DIRECT, Invocation, already_done
from toolformer.results import Dataset, Folder, Run
from toolformer.storage import atomic_file, atomic_write
from toolformer.tools.runtime import Usage, added, log_faults
from toolformer.tools.runtime import metrics as tool_metrics

if TYPE_CHECKING:
    from toolformer.decoding.lm_eval_model import ToolformerLM
    from toolformer.decoding.recording import AnswerFile
    from toolformer.evaluation.suite import Loaded, TaskResult
    from toolformer.tools.base import Tool

log = logging.getLogger(__name__)

SAMPLES = "samples"
TABLE_SAMPLES = 40
"""Samples in the table of MLflow's page, of all benchmarks together."""
_COLUMNS = ("prompt", "completion", "target", "score", "tool", "call_input", "call_result", "failed")


def evaluate(config: Config, invocation: Invocation = DIRECT) -> Run:
    """Asks the benchmarks' questions, scores the answers, and logs both; does nothing if that is done."""
    from toolformer.decoding.recording import AnswerFile

    engine.check_engine(config.engine)
    results, job = instantiate.results(config), prepare(config)
    sources = [job.system.trained] if job.system.trained else []
    read = "".join(f", reads train run {run.id[:8]}" for run in sources)
    log.info("evaluate: %s on %s%s", job.title, ", ".join(job.tasks), read)
    if done := steps.done(results, job.step, config):
        results.add_name(done, config.name)
        return _logged(already_done(done), done)
    tools = check_system(job)
    questions = ask(job, results.path(job.system.step), results.path(job.step), job.tasks, job.samples)
    loaded = questions.load()  # bad data begins no run
    info = invocation.run_info(
        job.config, f"{config.name}: {job.title}", job.description, sources, **job.facts
    )
    opened = partial(results.open, job.step, info, done=lambda: steps.done(results, job.step, config))
    is_pooled, used = engine.is_pooled(config), dict[str, Usage]()
    with ExitStack() as stack:
        run = stack.enter_context(opened(wait=not is_pooled))
        if is_pooled and not isinstance(run, Run):  # also beside an equal command, which has the run
            used = answering.answer(questions, loaded)
        run = run or stack.enter_context(opened(wait=True))
        if isinstance(run, Run):
            return _logged(already_done(run), run)
        assert run
        answers = stack.enter_context(AnswerFile(questions.answers))
        lm, scores, counts = answer_and_score(job.config, questions, loaded, tools, answers)
        _log(job, questions, added(used, counts), lm, run, scores)
    return _logged("done", results.get(job.step.key()), invocation.command)


def check_system(job: Evaluation) -> dict[str, Tool]:
    """The system's tools. UserError for what cannot answer, before the rows are read, which may take long."""
    from toolformer.lm.loading import choose_device, load_config
    from toolformer.training.checkpoints import check_intact

    config = job.config
    choose_device(config.lm.device)
    if not job.system.trained:
        load_config(config.model)
    check_intact(Path(job.system.model))
    tools = job.system.tools()
    instantiate.of_system(config, tools)
    return tools


def ask(job: Evaluation, folder: Path, files: Path, tasks: Sequence[str], samples: Any) -> Questions:
    """The questions of these tasks to a system.

    Args:
        folder: of its answers.
        files: the folder of what the loaders read.
        samples: as `suite.load_tasks` takes them.
    """
    config = job.config
    for path in (folder, files):
        path.mkdir(parents=True, exist_ok=True)
    # Answers are shared, and so is the day on which they are given, for examples without a date.
    clocks = job.system.clocks()
    return Questions(
        config=config,
        model=job.system.model,
        identity=job.system.identity(),
        tasks=tasks,
        metadata=_metadata(job, tasks, files),
        samples=samples,
        clocks=clocks,
        day=first_day(folder) if clocks else None,
        answers=folder / ANSWERS,
    )


def answer_and_score(
    config: Config,
    questions: Questions,
    loaded: Loaded,
    tools: Mapping[str, Tool],
    answers: AnswerFile,
) -> tuple[ToolformerLM, dict[str, TaskResult], dict[str, Usage]]:
    """Answers the questions that no worker has answered, and scores all answers.

    Returns lm-eval's view of the model, the result of each task, and the counts of the calls that were made, by tool.
    """
    from toolformer.evaluation import suite

    answering.gather(answers)  # also of an evaluation that was interrupted
    lm = questions.lm(instantiate.decoder(config, questions.model, tools), answers)
    used = answering.answer(questions, loaded, lm)
    gold_nats = config.evaluation.gold_nats and config.system != "prompted"
    return lm, suite.evaluate_tasks(lm, loaded, gold_nats=gold_nats), used


def _log(
    job: Evaluation,
    questions: Questions,
    used: Mapping[str, Usage],
    lm: ToolformerLM,
    run: Folder,
    results: Mapping[str, TaskResult],
) -> None:
    """Writes samples and metrics."""
    from toolformer.evaluation.metrics import speed, task_metrics

    config = job.config
    if questions.day:
        run.add_facts(day=questions.day.isoformat())
    metrics = speed([sample for result in results.values() for sample in result.samples])
    run.add_facts(dtype=str(lm.language_model.dtype).removeprefix("torch."))
    metrics["parameters"] = lm.language_model.model.num_parameters()
    names = {config.tool[tool].name: tool for tool in config.tools}
    for task, result in results.items():
        run.task(task, task_metrics(result, names))
        run.artifact(write_rows(run.path / SAMPLES / f"{task}.parquet", result.samples), SAMPLES)
        run.datasets(_dataset(config, task, result))
    _table(run, results)
    run.metrics({**metrics, **tool_metrics(used)})
    log_faults(used)


def _dataset(config: Config, task: str, result: TaskResult) -> Dataset:
    questions = [[sample["id"], sample.get("prompt", sample.get("text_sha256"))] for sample in result.samples]
    digest = hashlib.sha256(json.dumps(questions).encode()).hexdigest()
    source = f"{config.paths.data_dir}/{task}" if config.paths.data_dir else task
    return Dataset(task, digest, "evaluation", source, len(questions))


def _table(run: Folder, results: Mapping[str, TaskResult]) -> None:
    """A table of samples for MLflow's page."""
    answered = {task: result.samples for task, result in results.items() if not result.is_perplexity}
    rows = [
        {"task": task, "id": sample["id"], **{key: sample[key] for key in _COLUMNS}}
        for task, samples in answered.items()
        for sample in samples[: max(1, TABLE_SAMPLES // len(answered))]
    ]
    if rows:
        content = {"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}
        run.text("samples.json", json.dumps(content, ensure_ascii=False, default=str))


def _logged(how: str, run: Run, command: str = "") -> Run:
    """Logs a line with the run and its dtype, one per benchmark, and what failed; returns the run."""
    from toolformer.evaluation.metrics import count_faults

    dtype = run.facts.get("dtype", "")
    log.info("evaluate: %s, run %s%s", how, run.id[:8], f", in {dtype}" if dtype else "")
    for task, metrics in sorted(run.tasks.items()):
        low, high, n = (metrics.get(name, float("nan")) for name in ("ci_low", "ci_high", "n"))
        is_score = "score" in metrics
        figure = (
            f"{metrics['score']:.1f} % correct" if is_score else f"perplexity {metrics['perplexity']:.2f}"
        )
        log.info("%s: %s [%.1f, %.1f] (n = %.0f)", task, figure, low, high, n)
    reasons = count_faults(run.tasks)
    if reasons:
        listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(5))
        log.warning(
            "evaluate: a tool or server failed in %d answers (%s), which are not kept. To ask only for them again: %s; to "
            "accept them: evaluation.accept_faults=true",
            *(reasons.total(), listed, command or run.command),
        )
    return run


def _metadata(job: Evaluation, tasks: Sequence[str], folder: Path) -> dict[str, Any]:
    """The arguments of the tasks' loaders; held-out texts are written into `folder` for them."""
    config = job.config
    arguments: dict[str, Any] = {
        "data_dir": config.paths.data_dir,
        "subset": config.evaluation.limit,
        "perplexity_subset": config.evaluation.perplexity_limit,
        "seed": config.seed,
        "wording": config.wording,
    }
    if "heldout_perplexity" in tasks:
        arguments["heldout_path"] = str(_write_heldout(job, folder / "heldout.jsonl"))
    return arguments


def _write_heldout(job: Evaluation, path: Path) -> Path:
    """The held-out texts as their task reads them; logs where they come from, and how many of the rows of a named corpus were kept."""
    rows = [{"id": document.doc_id, "text": document.text} for document in _heldout(job)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    atomic_write(path, lines.encode("utf-8"))
    return path


def _heldout(job: Evaluation) -> list[Document]:
    config, trained = job.config, job.system.trained
    if config.heldout.source:
        corpus = instantiate.corpus(config.heldout, "heldout")
        documents = [*corpus]
        skipped = corpus.skipped()
        total = len(documents) + sum(skipped.values())
        log.info("heldout: %d rows read, %d kept, dropped: %s", total, len(documents), skipped or "none")
    elif steps_read := steps.heldout_annotations(config, trained.step if trained else None):
        results = instantiate.finished_results(config)
        runs = [results.get(step.key()) for step in steps_read]
        documents = read_heldout(results, runs)
        names = " and ".join(run.id[:8] for run in runs)
        log.info("heldout: %d texts that generate run %s held out of its corpus", len(documents), names)
    else:
        documents = steps.split_off(config)
        log.info("heldout: %d texts held out of %s", len(documents), instantiate.corpus_name(config.corpus))
    return documents


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Writes rows as Parquet; returns the path."""
    import pandas

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        pandas.DataFrame(list(rows)).to_parquet(temporary, index=False)
    return path
