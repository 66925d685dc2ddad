"""Stage 3: benchmarks with one of the systems (paper, section 4).

    model                 M, as it is
    model_cc              M + CC: finetuned on C, the texts without calls
    toolformer_disabled   finetuned on C*, the start token forbidden
    toolformer            finetuned on C*, with its tools
    prompted              M, shown examples of calls in its context, with the same tools
    baseline              any other model, as it is: the paper's larger ones

Two steps. *Answer* is one system asked anything: its folder holds the answers, which evaluations of further benchmarks
share. *Evaluate* is these questions, put to it and scored. Answers are written batch by batch: an interrupted evaluation
asks only for the missing ones. With `evaluation.oracles` the questions are also asked under oracle conditions, which say why
an answer is right or wrong.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolformer.benchmarks import PAPER
from toolformer.decoding.settings import SYSTEMS, policy_label
from toolformer.errors import UserError
from toolformer.jobs import heldout, instantiate, share
from toolformer.jobs.answer import Answering, Questions, answer
from toolformer.jobs.cluster import check_cluster
from toolformer.jobs.job import Job
from toolformer.jobs.outputs import model_folder
from toolformer.results import Dataset, Folder, Results, Run
from toolformer.results.provenance import model_name
from toolformer.results.run import questions_digest
from toolformer.storage import atomic_file, read_line, write_line
from toolformer.tools.runtime import added, log_faults, usages
from toolformer.tools.runtime import metrics as tool_metrics

if TYPE_CHECKING:
    from toolformer.decoding.decoder import Decoder
    from toolformer.decoding.lm_eval_model import ToolformerLM
    from toolformer.decoding.recording import AnswerFile
    from toolformer.evaluation.suite import Loaded, TaskResult

log = logging.getLogger(__name__)

ANSWERS = "answers.jsonl"
SAMPLES = "samples"
LADDER = "ladder"
"""The folder of the answers under oracle conditions."""
TABLE_SAMPLES = 40
"""Samples in the table of MLflow's page, of all benchmarks together."""
_COLUMNS = ("prompt", "completion", "target", "score", "tool", "call_input", "call_result", "failed")


class Work:
    """Asks the benchmarks' questions, and scores the answers."""

    decoder: Decoder
    loaded: Loaded
    questions: Questions
    chunks: Answering
    """What workers did."""
    processes = 1

    def __init__(self, job: Job, results: Results) -> None:
        self.job, self.config, self.results = job, job.config, results
        self.tasks: list[str] = job.step.settings["benchmarks"]
        self.answer = job.step.inputs["answers"]
        training = job.sources.training
        self.trained = results.get(training.key()) if training else None
        self.policy = policy_label(self.config.decoding, self.config.tool)
        """When a call starts, in words."""
        named = str(self.trained.setting("model", "")) if self.trained else job.sources.model
        self.model_name = model_name(named)
        """For a trained model, its base."""

    @property
    def model(self) -> str:
        """The model's name, or the folder of the trained one. UserError if that is gone."""
        return str(model_folder(self.trained)) if self.trained else self.job.sources.model

    @property
    def name(self) -> str:
        trained = self.trained
        parts = [f"seed={trained.seed if trained else self.config.seed}"]
        if trained and (threshold := trained.facts.get("threshold")) not in (None, ""):
            parts.append(f"τ_f={threshold}")
        return f"{' '.join([self._system, *parts])}: {self.model_name}, {self.config.name}"

    @property
    def _system(self) -> str:
        """The system, k and the wording, as far as they say something."""
        k = f"k={self.policy}" if SYSTEMS[self.config.system].calls_tools else ""
        wording = "" if self.config.wording == PAPER else f"wording={self.config.wording}"
        return " ".join(filter(None, (SYSTEMS[self.config.system].title, k, wording)))

    @property
    def title(self) -> str:
        read = f", reads train run {self.trained.id[:8]}" if self.trained else ""
        return f"{self._system} of {self.model_name} on {', '.join(self.tasks)}{read}"

    @property
    def details(self) -> dict[str, str]:
        names = {"system": SYSTEMS[self.config.system].title, "model": self.model_name, "k": self.policy}
        return {**names, "benchmarks": ", ".join(self.tasks)}

    @property
    def facts(self) -> dict[str, Any]:
        """Facts for reports besides metrics."""
        baseline = self.model_name if self.config.system == "baseline" else ""
        if self.config.system == "prompted":
            policy = f"k = {self.policy}" if self.policy.isdecimal() else self.policy
            baseline = f"{self.model_name}, prompted, {policy}"
        return {
            "system": self.config.system,
            "policy": self.policy,
            "k": int(self.policy) if self.policy.isdecimal() else None,
            "wording": self.config.wording,
            **({"baseline": baseline} if baseline else {}),
            **(
                {"implementations": instantiate.implementations(self.config, True)}
                if self.config.tools
                else {}
            ),
        }

    def check(self) -> None:
        """Checks first whether anything can answer, since reading the rows may take long."""
        from toolformer.evaluation.ladder.rungs import usable
        from toolformer.training.checkpoints import check_intact

        check_cluster(self.config.engine)
        check_intact(Path(self.model), or_gone=True)  # then answers that are there are scored
        model = instantiate.placement(self.config, self.model)
        self.parameters = model.parameters
        self.config = share.fitted(self.config, model)
        self.decoder = instantiate.decoder(self.config, model)
        self.questions = self._questions()
        self.loaded = self.questions.load()
        off = self.loaded.switched_off
        self.explained = [task for task in self.tasks if usable(task, self.decoder.tools, off[task])]
        if self.config.evaluation.oracles and not self.explained:
            raise UserError(
                "evaluation.oracles needs a benchmark whose right call is known and whose tool is in use; add one (docs/ladder.md)"
            )

    def share(self, folder: Folder | None) -> None:
        """Has workers answer, if there are several."""
        shared = self.results.path(self.answer)
        shared.mkdir(parents=True, exist_ok=True)
        # Answers are shared, and so is the day on which they are given, for examples without a date.
        day = first_day(shared) if instantiate.clocks(self.config) else None
        self.chunks = answer(replace(self.questions, day=day), self.loaded)

    def finish(self, folder: Folder) -> None:
        """Answers what is left, and scores all answers."""
        from toolformer.decoding.recording import AnswerFile
        from toolformer.evaluation import suite

        questions = self.chunks.questions
        with AnswerFile(questions.answers) as answers:
            lm = questions.lm(self.decoder, answers)
            gold_nats = self.config.evaluation.gold_nats and self.config.system != "prompted"
            scores = suite.evaluate_tasks(lm, self.loaded, gold_nats=gold_nats)
            self._write(folder, lm, scores)
            self.chunks.forget()
            if self.config.evaluation.oracles:
                self._explain(folder, answers, scores)

    def _write(self, run: Folder, lm: ToolformerLM, scores: Mapping[str, TaskResult]) -> None:
        """Writes samples and metrics."""
        from toolformer.evaluation.metrics import speed, task_metrics

        if day := self.chunks.questions.day:
            run.add_facts(day=day.isoformat())
        metrics = speed([sample for result in scores.values() for sample in result.samples])
        run.add_facts(dtype=str(lm.language_model.dtype).removeprefix("torch."))
        metrics["parameters"] = self.parameters
        names = {tool.name: key for key, tool in self.config.tool.items()}
        for task, result in scores.items():
            run.task(task, task_metrics(result, names))
            run.artifact(write_rows(run.path / SAMPLES / f"{task}.parquet", result.samples), SAMPLES)
            run.datasets(self._dataset(task, result))
        _table(run, scores)
        used = added(self.chunks.used(), usages(self.decoder.tools))
        run.metrics({**metrics, **tool_metrics(used)})
        log_faults(used)

    def _explain(self, run: Folder, answers: AnswerFile, scores: Mapping[str, TaskResult]) -> None:
        """Answers under the oracle conditions, and writes the class of each example."""
        from toolformer.evaluation.ladder.classes import CLASSES, metrics_of
        from toolformer.evaluation.ladder.rungs import Ladder

        questions = self.chunks.questions
        oracles = Ladder(
            self.decoder, lambda decoder, more: questions.lm(decoder, answers, more), questions.day
        )
        for task in self.explained:
            off = self.loaded.switched_off[task]
            rows = oracles.climb(task, self.loaded.tasks["tasks"][task], off, scores[task].samples)
            run.task(task, {**run.tasks[task], **metrics_of(rows)})
            run.artifact(write_rows(run.path / LADDER / f"{task}.parquet", rows), LADDER)
            counts = Counter(row["class"] for row in rows).most_common()
            log.info("explain: %s: %s", task, ", ".join(f"{CLASSES[name]} {n}" for name, n in counts))
        log_faults(usages(self.decoder.tools))

    def _dataset(self, task: str, result: TaskResult) -> Dataset:
        questions = [
            (sample["id"], sample.get("prompt", sample.get("text_sha256"))) for sample in result.samples
        ]
        digest = questions_digest(questions)
        data_dir = self.config.paths.data_dir
        return Dataset(task, digest, "evaluation", f"{data_dir}/{task}" if data_dir else task, len(questions))

    def log(self, how: str, run: Run) -> None:
        """Logs a line with the run and its dtype, one per benchmark, and what failed."""
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
        if reasons := count_faults(run.tasks):
            listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(5))
            log.warning(
                "evaluate: a tool or server failed in %d answers (%s), which are not kept. To ask only for them again: %s; to "
                "accept them: evaluation.accept_faults=true",
                *(reasons.total(), listed, run.command),
            )

    # Its questions

    def _questions(self) -> Questions:
        """The questions of all benchmarks, as they are put on no certain day."""
        from toolformer.training.checkpoints import deciding_files

        config = self.config
        identity: dict[str, Any] = {"model": self.answer.key(without=["decoding"])}
        if self.trained:
            # The same settings trained again after the model was deleted may come to other weights in the same folder.
            identity["weights"] = deciding_files(Path(self.model))
        metadata: dict[str, Any] = {
            "data_dir": config.paths.data_dir,
            "subset": config.evaluation.limit,
            "perplexity_subset": config.evaluation.perplexity_limit,
            "seed": config.seed,
            "wording": config.wording,
        }
        if heldout.TASK in self.tasks:
            _, metadata["heldout"] = heldout.texts(config, self.job.sources, self.results)
        return Questions(
            config=config,
            model=self.model,
            identity=identity,
            tasks=self.tasks,
            metadata=metadata,
            samples=self.job.step.inputs["samples"],
            day=None,
            answers=self.results.path(self.answer) / ANSWERS,
        )


def first_day(folder: Path) -> datetime.date:
    """The day on which answers in this folder were first asked for: all of them are of one day."""
    path = folder / "day"
    try:
        if recorded := read_line(path):
            return datetime.date.fromisoformat(recorded)
    except ValueError:
        # Each answer is stored under the date that it was given for: none of another day is used.
        log.warning("evaluate: %s holds no day; questions without a date are asked as of today", path)
    today = datetime.date.today()
    write_line(path, today.isoformat())
    return today


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


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Writes rows as Parquet; returns the path."""
    import pandas

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        pandas.DataFrame(list(rows)).to_parquet(temporary, index=False)
    return path
