"""Evaluations as others read them: `.eval_results/*.yaml` of the Hub, and every_eval_ever's JSON.

`.eval_results/NAME.yaml` has a benchmark's result without tools, `NAME_with_tools.yaml` the one with them
(huggingface.co/docs/hub/eval-results). Only benchmarks with a data set on the Hub have one. every_eval_ever: schema 0.2.1
(github.com/evaleval/every_eval_ever), one file per evaluation.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from toolformer.benchmarks import PAPER, TASKS, TASKS_DIR
from toolformer.decoding.settings import CALLING, SYSTEMS
from toolformer.reporting.formatting import title_of
from toolformer.reporting.frame import scores
from toolformer.reporting.reader import task_metrics
from toolformer.results import Run

EVAL_RESULTS, EVERY_EVAL_EVER = ".eval_results", "every_eval_ever"
SCHEMA = "0.2.1"
MOST_PERPLEXITY = 1e6
"""The schema wants a largest value of every metric; a perplexity has none."""


@dataclass(frozen=True)
class Measured:
    """A benchmark of an evaluation."""

    run: Run
    task: str
    value: float
    """Percent, or perplexity."""

    @property
    def metrics(self) -> Mapping[str, float]:
        return task_metrics(self.task, self.run)

    @property
    def is_perplexity(self) -> bool:
        return f"{self.task}/perplexity" in self.run.metrics

    @property
    def measure(self) -> str:
        return "perplexity" if self.is_perplexity else "percent correct"


def measured(runs: Sequence[Run]) -> Iterator[Measured]:
    """Every benchmark of the evaluations, in their order."""
    for run in runs:
        for task, value in scores(run).items():
            yield Measured(run, task, value)


def files(runs: Sequence[Run], model: str) -> dict[str, str]:
    """The files' texts by path; of several evaluations of one benchmark the first, which is the newest, is the Hub's."""
    texts: dict[str, str] = {}
    for result in measured(runs):
        calls = result.run.facts.get("system") in CALLING
        path = f"{EVAL_RESULTS}/{result.task}{'_with_tools' if calls else ''}.yaml"
        if path not in texts and (entry := _entry(result, calls)):
            texts[path] = yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False)
    for run in runs:
        record = every_eval_ever(run, model)
        texts[f"{EVERY_EVAL_EVER}/{run.id}.json"] = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    return texts


def hub_pin(task: str) -> Mapping[str, Any]:
    """Where a benchmark is on the Hub (`path`, `config`, `split`, `revision`); empty if it is not there."""
    path = next(TASKS_DIR.glob(f"*/{task}.yaml"), None) if task in TASKS else None
    if path is None:
        return {}
    read = yaml.load(path.read_text(encoding="utf-8"), _TaskFile)
    pin: Mapping[str, Any] = read.get("metadata", {}).get("hub") or {}
    return pin if "/" in str(pin.get("path", "")) else {}


class _TaskFile(yaml.SafeLoader):
    """Reads lm-eval's task files without running their functions."""


_TaskFile.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))


def _entry(result: Measured, calls: bool) -> EvalResultEntry | None:
    """The Hub's entry of a result, or None without a data set there, in another wording, or of a perplexity."""
    pin = hub_pin(result.task)
    if not pin or result.is_perplexity or result.run.facts.get("wording", PAPER) != PAPER:
        return None
    revision = str(pin.get("revision", ""))
    ended = result.run.ended
    system = SYSTEMS[result.run.facts["system"]]
    return EvalResultEntry(
        dataset_id=pin["path"],
        task_id=str(pin.get("config") or pin.get("data_dir") or "default"),
        value=result.value,
        dataset_revision=revision if re.fullmatch("[0-9a-f]{40}", revision) else None,
        date=ended.isoformat() if ended else None,
        notes=f"{'tools' if calls else 'no-tools'}; {system}; n = {result.metrics.get('n', 0):.0f}",
    )


def every_eval_ever(run: Run, model: str) -> dict[str, Any]:
    """An evaluation as an object of every_eval_ever's schema; details are texts, as it wants."""
    ended = str(int((run.ended or run.started).timestamp()))
    details = {
        "system": SYSTEMS[run.facts["system"]],
        "policy": str(run.facts.get("policy", "")),
        "dtype": str(run.facts.get("dtype", "")),
        "training": ", ".join(run.made_from),
    }
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"toolformer/{model}/{ended}",
        "evaluation_timestamp": ended,
        "retrieved_timestamp": ended,
        "source_metadata": {
            "source_name": "Toolformer, the harness",
            "source_type": "evaluation_run",
            "source_organization_name": model.rpartition("/")[0] or "unknown",
            "evaluator_relationship": "first_party",
        },
        "eval_library": {
            "name": "lm_eval",
            "version": str(run.facts.get("version.lm-eval", "unknown")),
            "additional_details": {"toolformer": str(run.facts.get("version.toolformer", "unknown"))},
        },
        "model_info": {"name": model.rpartition("/")[2], "id": model, "additional_details": details},
        "evaluation_results": [_result(result) for result in measured([run])],
    }


def _result(result: Measured) -> dict[str, Any]:
    pin, metrics, run = hub_pin(result.task), result.metrics, result.run
    data: dict[str, Any] = {"dataset_name": title_of(result.task), "source_type": "other"}
    if pin:
        split = pin["split"] if isinstance(pin["split"], str) else "+".join(pin["split"])
        data |= {"source_type": "hf_dataset", "hf_repo": pin["path"], "hf_split": split}
        data["samples_number"] = int(metrics.get("n", 0))
    uncertainty: dict[str, Any] = {"num_samples": int(metrics.get("n", 0))}
    if {"ci_low", "ci_high"} <= metrics.keys():
        interval = {"lower": metrics["ci_low"], "upper": metrics["ci_high"], "confidence_level": 0.95}
        uncertainty["confidence_interval"] = interval | {"method": "bootstrap"}
    return {
        "evaluation_name": result.task,
        "source_data": data,
        "evaluation_timestamp": str(int((run.ended or run.started).timestamp())),
        "metric_config": {
            "evaluation_description": result.measure,
            "lower_is_better": result.is_perplexity,
            "score_type": "continuous",
            "min_score": 1.0 if result.is_perplexity else 0.0,
            "max_score": MOST_PERPLEXITY if result.is_perplexity else 100.0,
        },
        "score_details": {
            "score": result.value,
            "details": {"calls": f"{metrics.get('n_ac', 0):.0f}"},
            "uncertainty": uncertainty,
        },
        "generation_config": {"generation_args": {"execution_command": _public(run)}},
    }


def _public(run: Run) -> str:
    from toolformer.export.cards import public

    return public(run.command)
