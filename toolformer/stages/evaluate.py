"""Stage 3: benchmarks with one of the systems (paper, section 4).

    model                 M, as it is
    model_cc              M + CC: finetuned on C, the texts without calls
    toolformer_disabled   finetuned on C*, the start token forbidden
    toolformer            finetuned on C*, with its tools
    prompted              M, shown examples of calls in its context, with the same tools
    chat                  M as an instruct model, offered the same tools by its chat template
    baseline              any other model, as it is: the paper's larger ones
    endpoint              a model served elsewhere

Tasks, data, samples and tools are checked before a model is loaded. Answers are written batch by batch: an interrupted
evaluation asks only for the missing ones.
"""

import datetime
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from toolformer.benchmarks import PAPER
from toolformer.decoding.settings import CALLING, SYSTEMS, TRAINED_ON, TUNED, chosen_on, tuned
from toolformer.decoding.settings import shown as shown_policy
from toolformer.errors import UserError
from toolformer.stages import engine, instantiate
from toolformer.stages.config import Config, fingerprint
from toolformer.stages.engine import answering
from toolformer.stages.evaluation_identity import (
    Identity,
    answered_by,
    calls,
    comparison,
    decoding,
    identity,
)
from toolformer.stages.evaluation_pages import log_result, show
from toolformer.stages.identity import weights
from toolformer.storage import below, whole_file, write_whole
from toolformer.tools.runtime import figures as tool_figures
from toolformer.tools.runtime import log_faults, usages
from toolformer.tracking import Run, Tracker, registry
from toolformer.results.provenance import describe, model_name

log = logging.getLogger(__name__)

SAMPLES = "samples"
ANSWERS = "answers.jsonl"
LATEST = "latest"


def train_run(
    tracker: Tracker, reference: str, data: str, preferred: Mapping[str, str] | None = None, **tags: str
) -> Run:
    """The train run that `reference` names: `latest` (as `Tracker.resolve`), an id, or `models:/NAME/VERSION`.

    UserError if there is none, or it was trained on other data.
    """
    if reference.startswith(registry.SCHEME):
        run = registry.resolve(tracker, reference)
    else:
        run = tracker.resolve("train", reference, preferred, data=data, **tags)
    if run.tags.get("data") != data:
        raise UserError(f"checkpoint: run {run.run_id[:8]} has data={run.tags.get('data')}, not {data}")
    return run


def preferred(seed: int, model: str, words: str) -> dict[str, str]:
    """What `latest` is where there is such a training: from a model that the words name, and of this seed."""
    return ({"model": model} if _names_model(words) else {}) | {"seed": str(seed)}


def _names_model(words: str) -> bool:
    return re.search(r"(^|[ '+])model=", words) is not None


def check_base(run: Run, model: str, words: str) -> None:
    """Refuses a `model=` among the words that is not the model which the train run began with: nobody would read it.

    Where the words name none, any will do: that of a setting says nothing of a checkpoint.
    """
    base = run.params.get("model", model)
    is_same = Path(base).expanduser().resolve() == Path(model).expanduser().resolve()
    if not is_same and _names_model(words):
        raise UserError(
            f"model={model}: checkpoint {run.run_id[:8]} was trained from {base}; name one that was trained from {model} "
            f"(checkpoint=RUN; toolformer train model={model} makes it), or leave model= out"
        )


def model_folder(tracker: Tracker, run: Run) -> Path:
    """The model of a train run, below the folder of runs wherever that has been moved to; UserError if it is gone."""
    tagged = Path(run.tags.get("model_path", ""))
    folder = below(tracker.root / "train", tagged.parent.name, tagged.name)
    if not (folder / "config.json").is_file():
        raise UserError(
            f"checkpoint: the model of run {run.run_id[:8]} is no longer at {folder}; train it again"
        )
    return folder


@dataclass(frozen=True)
class Job:
    """A configured evaluation."""

    tasks: list[str]
    trained: Run | None
    """The train run whose model is evaluated."""
    identity: Identity
    fingerprint: str
    config: Config
    """With the policy that is stored with the model in place of `decoding.policy=tuned`."""
    folder: Path
    """Of the answers, which evaluations of other benchmarks with the same system share."""


def prepare(config: Config, tracker: Tracker, command: str = "") -> Job:
    """What an evaluation is about to do. UserError if there is no such benchmark, train run or file of samples."""
    from toolformer.evaluation import suite

    tasks = _possible(config, suite.task_names(config.benchmarks, config.paths.tasks_dir))
    trained: Run | None = None
    if config.system in TRAINED_ON:
        # `model` names a checkpoint too: the newest, or one of the registry.
        named = config.model == LATEST or config.model.startswith(registry.SCHEME)
        reference = config.model if named else config.checkpoint
        own = preferred(config.seed, config.model, "" if named else command)
        trained = train_run(tracker, reference, TRAINED_ON[config.system], own, experiment=config.name)
        if config.model and not named:
            check_base(trained, config.model, command)
    if config.decoding.policy == TUNED and trained and calls(config):
        config = replace(config, decoding=tuned(config.decoding, model_folder(tracker, trained)))
    asked = identity(config, tasks, trained)
    folder = Path(config.paths.root) / "evaluate" / asked.folder
    return Job(tasks, trained, asked, fingerprint(asked.evaluation, config.name), config, folder)


def _possible(config: Config, tasks: list[str]) -> list[str]:
    """The tasks that the system can do: without a tokenizer, an endpoint's log-probabilities mean nothing."""
    endpoint = config.endpoint
    if config.system != "endpoint" or (endpoint.tokenizer and endpoint.api == "completions"):
        return tasks
    possible = [task for task in tasks if not task.endswith("_perplexity")]
    needed = "endpoint.tokenizer, the served model's tokenizer (a folder or hub name), and endpoint.api=completions"
    if not possible:
        raise UserError(f"benchmarks: nothing is left to do: perplexity of an endpoint needs {needed}")
    if len(possible) < len(tasks):
        log.warning("evaluate: perplexity skipped: of an endpoint it needs %s", needed)
    return possible


def finished(config: Config) -> str | None:
    """The id of the run that did this evaluation, if one did; its model need not be there any more."""
    tracker = instantiate.tracker(config)
    run = _finished(tracker, prepare(config, tracker).fingerprint)
    return run.run_id if run else None


def _finished(tracker: Tracker, fingerprint: str) -> Run | None:
    """The run by which an evaluation is done; one whose samples are damaged or gone is none.

    Answers that met a fault (a tool or server that broke down) are not recorded, so that the same command asks for them
    again, until the newest run meets what an earlier one did: as many faults of each task, for the same reasons.
    """
    runs = tracker.done("evaluate", fingerprint)
    met = [_faults(run.metrics) for run in runs]
    if {} in met:
        return runs[met.index({})]
    return runs[0] if met and met[0] in met[1:] else None


def asks(
    config: Config, job: Job, model: Path | None, place: str, tasks: Sequence[str], samples: Any
) -> answering.Asked:
    """What a model is asked of these tasks; `place` is where in the job's folder the loaders' files stand.

    Args:
        model: the trained model's folder; None for what the configuration names.
        samples: as `suite.load` takes them.
    """
    own = job.folder / place
    own.mkdir(exist_ok=True)
    identity = answered_by(config, config.model, job.trained)
    if model:
        # The same settings trained again after the model was deleted may come to other weights at the same place.
        identity["weights"] = weights(model)
    # Answers are shared, and so is the day on which they are given where an example has none of its own.
    of_day = clocks(config) if calls(config) else []
    return answering.Asked(
        config,
        str(model or config.model),
        identity,
        tasks,
        metadata(config, tasks, own),
        samples,
        of_day,
        first_day(job.folder) if of_day else None,
        job.folder / ANSWERS,
    )


def evaluate(config: Config, parent: str | None = None, command: str = "", swept: str = "") -> Run:
    """Runs the benchmarks, unless that is done; `swept` is what tells the run from others of its sweep, for its name."""
    from toolformer.decoding.recording import AnswerFile
    from toolformer.evaluation import suite
    from toolformer.evaluation.figures import figures, speed
    from toolformer.lm.loading import choose_device, load_config

    engine.check(config)
    tracker = instantiate.tracker(config)
    job, together = prepare(config, tracker, command), comparison(config)
    is_tuned, config = config.decoding.policy == TUNED and calls(config), job.config
    facts = _facts(config, job)
    shown = [facts["system"], facts["model"], f"k={facts['k']}" if config.system in CALLING else ""]
    shown.append("" if config.wording == PAPER else f"wording={config.wording}")
    title = " ".join(filter(None, shown))
    read = f", reads train run {job.trained.run_id[:8]}" if job.trained else ""
    log.info("evaluate: %s on %s%s", title, facts["benchmarks"], read)
    if done := _done(job, tracker):
        return done

    if config.system != "endpoint":  # before the rows are read, which may take long
        choose_device(config.lm.device)
        if not job.trained:
            load_config(config.model)
    folder = model_folder(tracker, job.trained) if job.trained else None
    tools = instantiate.tools(config, inference=True) if calls(config) else {}
    instantiate.of_system(config, str(folder or config.model), tools)
    with ExitStack() as stack:
        answers = stack.enter_context(AnswerFile(job.folder / ANSWERS))
        if answers.waited and (done := _done(job, tracker)):
            return done
        answering.gather(answers)  # of an evaluation that was interrupted
        place = job.identity.evaluation
        asked = asks(config, job, folder, place, job.tasks, job.identity.questions["samples"])
        loaded = asked.load()
        # A wrong key or tokenizer begins no run.
        lm: Any = asked.served(answers, tools) if config.system == "endpoint" else None
        tracked = tracker.run(
            stage="evaluate", name=f"{config.name}: {title} {swept}", fingerprint=job.fingerprint, config=asdict(config),
            tags={**_tags(config, job, asked.day), "comparison": together}, parent=parent,
            description=describe(command, facts, [job.trained]),
        )  # fmt: skip
        run = stack.enter_context(tracked)
        if lm is None:
            if config.engine.workers > 1 or config.engine.kind == "ray":
                answering.answer(asked, sum(map(len, suite.requests(loaded).values())))
                answering.gather(answers)
            lm = asked.lm(instantiate.decoder(config, asked.model, tools), answers)
        metrics: dict[str, float] = {}
        if language_model := getattr(lm, "language_model", None):
            run.tags({"dtype": str(language_model.dtype).removeprefix("torch.")})
            metrics["parameters"] = language_model.model.num_parameters()
        settings = config.evaluation
        gold_nats = settings.gold_nats and config.system not in ("prompted", "chat", "endpoint")
        results = suite.run(
            lm, loaded, bootstrap_iters=settings.bootstrap, seed=config.seed, gold_nats=gold_nats
        )
        metrics |= speed([sample for result in results.values() for sample in result.samples])
        names = {config.tool[tool].name: tool for tool in config.tools}
        for task, result in results.items():
            ids = (sample["id"] for sample in result.samples)
            if is_tuned and (chosen := chosen_on(asked.model, task, ids)):
                log.warning(
                    "evaluate: %s: the policy was chosen on %d of these %d examples; evaluation.samples takes the others, "
                    "test.json of tune-policy's run",
                    *(task, chosen, len(result.samples)),
                )
            metrics |= {f"{task}/{figure}": value for figure, value in figures(result, names).items()}
            run.artifact(written(job.folder / place / f"{task}.parquet", result.samples), SAMPLES)
        show(run, results, config, job.trained)
        used = usages(tools)
        run.metrics({**metrics, **tool_figures(used)})
        log_faults(used)
    return _logged("done", tracker.get(run.run_id), _finished(tracker, job.fingerprint), command)


def _done(job: Job, tracker: Tracker) -> Run | None:
    run = _finished(tracker, job.fingerprint)
    return run and _logged("already done", run, run)


def _logged(how: str, run: Run, done: Run | None, command: str = "") -> Run:
    """Logs what an evaluation came to, and returns its run; `done` is the run by which it is done, whatever its faults."""
    log_result(run, how)
    reasons: Counter[str] = Counter()
    for (_, reason), number in _faults(run.metrics).items():
        reasons[reason] += int(number)
    if reasons:
        listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(5))
        then = f"they are not kept. To ask only for them again: {command or 'the same command'}"
        if done:
            then = (
                f"an earlier run met the same, so that run {done.run_id[:8]} counts as done. To ask only for them once "
                "more, give it another name="
            )
        log.warning("evaluate: %d answers met a fault (%s); %s", reasons.total(), listed, then)
    return run


def _faults(metrics: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """How many answers of a task met a fault, by task and reason."""
    from toolformer.evaluation.figures import FAULTS

    parts = {name: name.partition(f"/{FAULTS}/") for name in metrics}
    return {(task, reason): metrics[name] for name, (task, fault, reason) in parts.items() if fault}


def _baseline(config: Config) -> str:
    """What a model to compare with is called in reports; empty for the paper's systems."""
    is_served = config.system == "endpoint"
    name = str(config.endpoint.model) if is_served else model_name(config.model)
    if config.system == "chat" or (is_served and config.endpoint.api == "chat"):
        return f"{name}, chat" + ("" if calls(config) else ", no tools")
    if config.system == "prompted":
        k = shown_policy(decoding(config))
        return f"{name}, prompted, {f'k = {k}' if k.isdecimal() else k}"
    return name if config.system in ("baseline", "endpoint") else ""


def _facts(config: Config, job: Job) -> dict[str, str]:
    """What the run's name and description say."""
    model = job.trained.params.get("model", "") if job.trained else config.model
    return {
        "system": SYSTEMS[config.system],
        "model": str(config.endpoint.model) if config.system == "endpoint" else model_name(model),
        "k": shown_policy(job.identity.answers["decoding"]),
        "benchmarks": ", ".join(job.tasks),
    }


def _tags(config: Config, job: Job, day: datetime.date | None) -> dict[str, object]:
    from toolformer.evaluation import suite

    tags: dict[str, object] = {
        "experiment": config.name,
        "system": config.system,
        "decoding.k": shown_policy(job.identity.answers["decoding"]),
        "scoring": fingerprint(suite.scoring_code()),
    }
    if _baseline(config):
        tags["baseline"] = _baseline(config)
    if day:
        tags["day"] = day.isoformat()
    if job.trained:
        tags["lineage.train_run_id"] = job.trained.run_id
        tags["lineage.dataset_run_id"] = job.trained.tags.get("lineage.dataset_run_id", "")
    return tags


def clocks(config: Config) -> list[str]:
    """The tools, by key, that answer with a day where an example has no date of its own."""
    tools = {key: config.tool[key] for key in config.tools}
    return [key for key, tool in tools.items() if {**tool.implementation, **tool.inference}.get("use_clock")]


def metadata(config: Config, tasks: Sequence[str], folder: Path) -> dict[str, Any]:
    """What the tasks' loaders are given; held-out texts are written into `folder` for them."""
    given: dict[str, Any] = {
        "data_dir": config.paths.data_dir,
        "subset": config.evaluation.limit,
        "perplexity_subset": config.evaluation.perplexity_limit,
        "seed": config.seed,
        "wording": config.wording,
    }
    if "heldout_perplexity" in tasks:
        given["heldout_path"] = str(_write_heldout(config, folder / "heldout.jsonl"))
    return given


def _write_heldout(config: Config, path: Path) -> Path:
    """The held-out corpus as its task reads it; logs how many of its rows were read and kept."""
    corpus = instantiate.Corpus(config.heldout, "heldout")
    rows = [{"id": document.doc_id, "text": document.text} for document in corpus]
    skipped = corpus.skipped()
    total = len(rows) + sum(skipped.values())
    log.info("heldout: %d rows read, %d kept, dropped: %s", total, len(rows), skipped or "none")
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_whole(path, lines.encode("utf-8"))
    return path


def first_day(folder: Path) -> datetime.date:
    """The day on which answers of this folder were first asked for: all of them are of one day."""
    path = folder / "day"
    if not path.exists():
        write_whole(path, f"{datetime.date.today().isoformat()}\n".encode())
    return datetime.date.fromisoformat(path.read_text(encoding="utf-8").strip())


def written(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """The path, with the rows in it as Parquet."""
    import pandas

    with whole_file(path) as temporary:
        pandas.DataFrame(list(rows)).to_parquet(temporary, index=False)
    return path
