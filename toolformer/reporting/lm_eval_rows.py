"""Rows of models that lm-eval's command measured, such as served ones, read from the files of results that it writes.

A row joins a table only with the task, version, settings of generation and questions of the columns that it joins.
"""

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from toolformer.benchmarks import PAPER, TASKS
from toolformer.benchmarks.declared import declared, is_perplexity
from toolformer.credentials import printable, without_credentials
from toolformer.errors import UserError, one_line
from toolformer.reporting.data import Score
from toolformer.reporting.formatting import LM_EVAL
from toolformer.reporting.select import BASELINE
from toolformer.results import Run
from toolformer.results.run import questions_digest
from toolformer.statistics.intervals import wilson
from toolformer.step import Step
from toolformer.storage import sha256

SCORE = "score,none"
"""The metric of this project's tasks, percent correct, as lm-eval names it."""
LARGEST = 256 * 2**20
"""Bytes of a file that is read."""
_Count = Annotated[int, Field(ge=1, strict=True)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _Result(BaseModel):
    score: Annotated[_Number, Field(alias=SCORE, ge=0, le=100)]


class _Samples(BaseModel):
    original: _Count
    effective: _Count


class _Config(BaseModel):
    generation_kwargs: dict[str, Any]
    metadata: dict[str, Any] | None = None


class _Fields(BaseModel):
    """What is read of one task in a file of results."""

    results: _Result
    samples: Annotated[_Samples, Field(alias="n-samples")]
    configs: _Config
    date: Annotated[_Number, Field(ge=0, lt=253402300800)] | None = None  # before the year 10,000


Cells = Mapping[tuple[str, str], Score]
"""By system (a baseline's name after `BASELINE`) and task."""


def rows(paths: Iterable[str], measured: Cells) -> tuple[dict[tuple[str, str], Score], list[str]]:
    """The results in these files of lm-eval's, or in folders of them, as rows of baselines; and remarks on what is left out.

    Args:
        measured: the cells of the columns that they join.

    UserError for a file that is none of lm-eval's, and for results of another task, version or set of questions.
    """
    scores: dict[tuple[str, str], Score] = {}
    remarks: list[str] = []
    for path in _files(paths):
        measurement = _Measurement.of(path)
        left_out = [task for task in measurement.results if not measurement.is_row(task)]
        tasks = [task for task in measurement.results if task not in left_out]
        if not tasks:
            raise UserError(
                f"lm_eval: {path} has no benchmark of this project that is answered in words ({', '.join(left_out[:5])})"
            )
        if left_out:
            remarks.append(
                f"{path.name} of lm-eval: not shown are {', '.join(left_out)}, which are no tasks of this project, or measure "
                "perplexity by word."
            )
        for task in tasks:
            key = BASELINE + measurement.model, task
            if key in scores or key in measured:
                raise UserError(
                    f"lm_eval: {path}: {measurement.model} has a result on {task} already; leave one of them out"
                )
            column = [score for (_, name), score in (*measured.items(), *scores.items()) if name == task]
            measurement.check(task, column)
            scores[key] = measurement.score(task)
    return scores, remarks


def _files(paths: Iterable[str]) -> Iterator[Path]:
    for name in paths:
        path = Path(name).expanduser()
        files = sorted(path.rglob("results_*.json")) if path.is_dir() else [path]
        if not files:
            raise UserError(f"lm_eval: {path} has no file results_*.json; name the --output_path of lm-eval")
        yield from files


@dataclass(frozen=True)
class _Measurement:
    """A file of results."""

    path: Path
    model: str
    content: Mapping[str, Any]

    @classmethod
    def of(cls, path: Path) -> "_Measurement":
        """UserError for a file that is not lm-eval's."""
        try:
            if path.stat().st_size > LARGEST:
                raise ValueError("it is too large")
            content = json.loads(path.read_bytes())
            for part in ("results", "versions", "n-samples", "configs", "n-shot"):
                if not isinstance(content[part], dict):
                    raise ValueError(f"{part} is not an object")
            model = printable(without_credentials(str(content["model_name"]))).strip()[:100]
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise UserError(
                f"lm_eval: {path} is not a file of lm-eval's results ({type(error).__name__}: {one_line(error, 100)}); name a "
                "results_*.json, or the --output_path of lm-eval"
            ) from error
        return cls(path, model + ", chat template" * bool(content.get("chat_template")), content)

    @property
    def results(self) -> Mapping[str, Any]:
        return {task: found for task, found in self.content["results"].items() if task not in self.groups}

    @property
    def groups(self) -> Mapping[str, Any]:
        groups: Any = self.content.get("group_subtasks")
        return groups if isinstance(groups, dict) else {}

    @staticmethod
    def is_row(task: str) -> bool:
        """Whether a task is one of this project's that is answered in words."""
        return task in TASKS and not is_perplexity(task)

    def check(self, task: str, column: Sequence[Score]) -> None:
        """UserError if a result is of another task or version than ours, or of other questions than the column's."""
        place = f"lm_eval: {self.path.name}: {task}"
        result, ours = self.results[task], declared(task).version
        if isinstance(result, dict) and SCORE not in result:
            named = ", ".join(sorted(name for name in result if "," in name and "stderr" not in name))
            raise UserError(
                f"{place} has {named or 'no metric'} in place of {SCORE}: it is lm-eval's own task of this name; measure it with "
                "toolformer lm_eval, without --include_path"
            )
        self._check_fields(place, task)
        if (version := str(self.content["versions"].get(task))) != str(ours):
            raise UserError(f"{place} is version {version}, and here it is {ours}; measure it again")
        if shots := self.content["n-shot"].get(task):
            raise UserError(
                f"{place} has {shots} examples in its prompts, and the tables have none; leave --num_fewshot out"
            )
        if (wording := self._metadata(task).get("wording", PAPER)) != PAPER:
            raise UserError(f"{place} is asked in the wording {wording}; the tables have the paper's")
        given, wanted = (
            {"temperature": 0, **kwargs} for kwargs in (self._generation(task), declared(task).generation)
        )
        for name in sorted({*given, *wanted}):
            if given.get(name) != wanted.get(name):
                raise UserError(
                    f"{place} is generated with {name}={given.get(name)!r}, and the tables with {wanted.get(name)!r}; "
                    "leave --gen_kwargs out"
                )
        self._check_questions(place, task, column)

    def _check_fields(self, place: str, task: str) -> None:
        """UserError for a field of a wrong type or value, before any is read."""
        parts = {name: self.content[name].get(task) for name in ("results", "n-samples", "configs")}
        try:
            _Fields.model_validate({**parts, "date": self.content.get("date")})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            said = "it must be an object" if first["type"] == "model_type" else first["msg"]
            found = "" if first["type"] == "missing" else f", not {first['input']!r:.50}"
            raise UserError(
                f"{place}: {'.'.join(map(str, first['loc']))}: {said}{found}; measure it again"
            ) from error
        value, count = self.results[task][SCORE], self._count(task)
        right = value * count / 100
        if abs(right - round(right)) > 1e-3:
            raise UserError(
                f"{place}: results.{SCORE}: {value} is not the percentage of right answers to {count:,} questions (a fraction?); "
                "measure it again"
            )

    def _check_questions(self, place: str, task: str, column: Sequence[Score]) -> None:
        """By their digest where lm-eval wrote its samples, else by number, which must be that of all, or of a subset by seed."""
        columns = [run for score in column for run in score.runs]
        runs = [run for run in columns if run.step.name != LM_EVAL]
        digests = {run.questions[task] for run in columns if run.questions.get(task)}
        if digests and (digest := self._digest(task)):
            if digest not in digests:
                raise UserError(f"{place} asks other questions than the report's runs; measure the same ones")
            return
        count, known = self._count(task), sorted({score.n for score in column if score.n})
        if known and count not in known:
            raise UserError(
                f"{place} has {count:,} questions, and the report's column {' or '.join(f'{n:,}' for n in known)}; measure as many"
            )
        subset, seeds = self._metadata(task).get("subset"), [run.setting("seed", 0) for run in runs]
        of_other_seed = subset is not None and self._metadata(task).get("seed") not in seeds
        if of_other_seed or self.content["n-samples"][task].get("original") != count:
            advice = (
                "the file does not say which; measure it with --log_samples, and the subset and the seed of the report's runs in "
                "--metadata"
                if runs
                else "the report has no run that says which; measure all of them"
            )
            raise UserError(f"{place} has {count:,} of its questions, and {advice}")

    def score(self, task: str) -> Score:
        """The result with Wilson's interval."""
        value, count = float(self.results[task][SCORE]), self._count(task)
        low, high = (100 * end for end in wilson(round(value * count / 100), count))
        metrics = {"score": value, "ci_low": low, "ci_high": high, "n": count}
        digest = sha256(self.path)
        facts = {
            "system": "baseline",
            "baseline": self.model,
            "git_commit": str(self.content.get("git_hash") or "unknown"),
        }
        run = Run(
            Step(LM_EVAL, 1, {"file": digest}),
            Path(digest[:16]),
            self.path.name,
            "FINISHED",
            datetime.datetime.fromtimestamp(float(self.content.get("date") or 0), datetime.UTC),
            facts=facts,
            tasks={task: metrics},
            questions={task: digest_of_questions} if (digest_of_questions := self._digest(task)) else {},
        )
        return Score(value, low, high, (run,), metrics)

    def _count(self, task: str) -> int:
        return int(self.content["n-samples"][task]["effective"])

    def _generation(self, task: str) -> Mapping[str, Any]:
        kwargs: dict[str, Any] = self.content["configs"][task]["generation_kwargs"]
        return kwargs

    def _metadata(self, task: str) -> Mapping[str, Any]:
        metadata = self.content["configs"].get(task, {}).get("metadata")
        return metadata if isinstance(metadata, dict) else {}

    def _digest(self, task: str) -> str | None:
        """The digest of the questions in the file of samples that `--log_samples` wrote beside this one, if there is one."""
        date = self.path.stem.partition("_")[2]
        path = self.path.with_name(f"samples_{task}_{date}.jsonl")
        try:
            with path.open(encoding="utf-8") as file:
                samples = sorted(map(json.loads, file), key=lambda sample: sample["doc_id"])
            return questions_digest(
                (str(sample["doc"]["id"]), _prompt(sample["arguments"]["gen_args_0"]["arg_0"]))
                for sample in samples
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise UserError(
                f"lm_eval: {path} cannot be read ({one_line(error, 100)}); remove or replace it"
            ) from error


def _prompt(argument: Any) -> str:
    """The question, also of a conversation, which lm-eval writes as JSON."""
    if isinstance(argument, list):  # its own type of text, in a list
        (argument,) = argument
        return str(json.loads(argument)[-1]["content"])
    return str(argument)
