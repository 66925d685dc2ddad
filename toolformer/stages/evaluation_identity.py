"""What tells one evaluation, and one set of answers, from another."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from toolformer import calls as notation
from toolformer.benchmarks import PAPER
from toolformer.decoding import decoder, examples
from toolformer.decoding.settings import CALLING, deciding, under
from toolformer.errors import UserError
from toolformer.lm import language_model
from toolformer.stages import instantiate
from toolformer.stages.config import Config, fingerprint
from toolformer.stages.identity import ANNOTATING, HANDLING, PATIENCE, model_identity, tool_identity
from toolformer.storage import sha256
from toolformer.tracking import Run


@dataclass(frozen=True)
class Identity:
    """An evaluation, wherever it is run and whatever it is called."""

    answers: Mapping[str, Any]
    """What a reply depends on besides the prompt: it names the folder of cached answers."""
    questions: Mapping[str, Any]
    """What is asked, and of which data."""
    scoring: Mapping[str, str]
    """Hashes of the task files and of the code that prompts and scores."""

    @property
    def folder(self) -> str:
        """The name of the folder of cached answers."""
        return fingerprint("answers", self.answers)

    @property
    def evaluation(self) -> str:
        """A finished evaluation is not keyed by the weights, so it stays valid if the model is deleted."""
        return fingerprint("evaluate", asdict(self))


def calls(config: Config) -> bool:
    """Whether the system calls tools."""
    chats = config.system == "endpoint" and config.endpoint.api == "chat"
    return (config.system in CALLING or chats) and config.decoding.k > 0


def identity(config: Config, tasks: Sequence[str], trained: Run | None) -> Identity:
    """The identity of a configured evaluation. UserError if its samples or held-out texts cannot be read."""
    from toolformer.evaluation import suite

    settings = config.evaluation
    heldout = None
    if "heldout_perplexity" in tasks:
        heldout = instantiate.content_hash(instantiate.Corpus(config.heldout, "heldout"))
    endpoint = config.endpoint if config.system == "endpoint" else None
    questions = {
        "tasks": list(tasks),
        "samples": sample_ids(settings.samples),
        "limit": settings.limit,
        "perplexity_limit": settings.perplexity_limit,
        "bootstrap": settings.bootstrap,
        "seed": config.seed,
        "data": suite.data_state(tasks, config.paths.data_dir, config.paths.root),
        "heldout": heldout,
        # By which prompts are cut and texts scored.
        "reading": [endpoint.tokenizer, endpoint.max_length] if endpoint else None,
    }
    if settings.gold_nats:
        questions["gold_nats"] = True
    if config.wording != PAPER:
        questions["wording"] = config.wording
    answers = {
        "system": config.system,
        "decoding": decoding(config),
        "code": decoding_code(),
        # As configured: what `auto` means depends on the machine, which tells answers apart, not evaluations.
        "dtype": "" if endpoint else config.lm.dtype,
        **answered_by(config, config.model, trained),
    }
    return Identity(answers, questions, suite.scoring(tasks, config.paths.tasks_dir))


def answered_by(config: Config, model: str, trained: Run | None) -> dict[str, Any]:
    """The model and the tools that decide an answer, for the key of every recorded answer too."""
    tools = {key: config.tool[key] for key in config.tools} if calls(config) else {}
    answered: dict[str, Any] = {"tools": {key: _deciding(tool_identity(tool)) for key, tool in tools.items()}}
    if config.system == "endpoint":
        answered["model"] = [config.endpoint.url, config.endpoint.model]
        return answered | ({"api": "chat"} if config.endpoint.api == "chat" else {})
    # Two runs of the same settings may come to other weights.
    answered["model"] = {"train": trained.run_id} if trained else model_identity(model)
    if config.system == "prompted":
        answered["examples"] = {
            key: [*examples.of_tool(key, tool.name), tool.example] for key, tool in tools.items()
        }
    if config.system == "chat":
        answered["chat"] = asdict(config.chat)
    return answered


def _deciding(tool: Mapping[str, Any]) -> dict[str, Any]:
    ignored = (*ANNOTATING, *PATIENCE, *HANDLING)
    return {name: value for name, value in tool.items() if name not in ignored}


def decoding(config: Config) -> dict[str, Any]:
    """The decoding settings that decide an answer; k is 0 for a system that calls no tools."""
    return deciding({**asdict(config.decoding), "k": config.decoding.k if calls(config) else 0}, config.tools)


@functools.cache
def decoding_code() -> dict[str, str]:
    """The Python files that decode, the one that runs the model, and the notation of calls, with their SHA-256."""
    files = [
        *Path(decoder.__file__).parent.glob("*.py"),
        Path(language_model.__file__),
        Path(notation.__file__),
    ]
    return {file.name: sha256(file) for file in sorted(files)}


def comparison(config: Config) -> str:
    """What must be equal for two evaluations to stand in one table, as a hash.

    Questions and the size of their subset, tools, decoding and its code, number format and scoring code take part; not the
    system, its model, k or another policy (a column or row of its own), the list of benchmarks, nor the seed (of which a
    run is one sample). A wording other than the paper's stands behind it: `HASH-a`.
    """
    from toolformer.evaluation import suite

    settings, data_dir = config.evaluation, config.paths.data_dir
    asked = fingerprint(
        "comparison",
        {
            "samples": sample_ids(settings.samples),
            "limit": settings.limit,
            "perplexity_limit": settings.perplexity_limit,
            "data": str(Path(data_dir).expanduser().resolve()) if data_dir else None,
            "heldout": asdict(config.heldout),
            # As configured: only Toolformer has them, and a machine without their files compares its models all the same.
            "tools": {key: _deciding(asdict(config.tool[key])) for key in config.tools},
            "decoding": {**deciding(asdict(under(config.decoding, "topk", 0)), ()), "k": None},
            "decoding_code": decoding_code(),
            "dtype": config.lm.dtype,
            "scoring": suite.scoring_code(),
        },
    )
    return asked if config.wording == PAPER else f"{asked}-{config.wording}"


def sample_ids(samples: Any) -> dict[str, list[str]] | list[str] | None:
    """`evaluation.samples` as ids: a list, a mapping from benchmark to list, or a file that holds either.

    UserError if there are none.
    """
    if samples is None:
        return None
    content, key = samples, "evaluation.samples"
    try:
        if isinstance(samples, str):
            key = f"{key}: {samples}"
            text = Path(samples).expanduser().read_text(encoding="utf-8").strip()
            content = json.loads(text) if text[:1] in ("[", "{") else [*map(str.strip, text.splitlines())]
        adapter: TypeAdapter[Any] = TypeAdapter(dict[str, list[str | int]] | list[str | int])
        ids = adapter.validate_python(content)
    except ValidationError as error:
        raise UserError(f"{key} must be a list of ids, one by benchmark, or a file of ids") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{key} cannot be read as ids ({error}); name a file, or list the ids") from error
    if not ids:
        raise UserError(f"{key} holds no ids; leave it out (null) for all examples")
    if isinstance(ids, list):
        return _sorted(ids)
    return {task: _sorted(of_task) for task, of_task in ids.items()}


def _sorted(ids: Sequence[str | int]) -> list[str]:
    return sorted({str(name) for name in ids} - {""})
