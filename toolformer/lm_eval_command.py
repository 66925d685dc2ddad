"""lm-eval's own command line with this project's model and tasks in it: `toolformer lm_eval --model toolformer ...`.

lm-eval looks for no plug-ins, so its command is run from here. The model is configured as in the stages; what lm-eval
does with it afterwards (limits, output files, caches) is lm-eval's affair.
"""

from __future__ import annotations

import fnmatch
import io
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from lm_eval._cli import HarnessCLI
from lm_eval.api.registry import register_model
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.tasks import TaskManager
from lm_eval.utils import simple_parse_args_string

from benchmarks import GROUPS, TASKS, TASKS_DIR, suite, switches
from toolformer import build, loading
from toolformer.config import Config, compose, validate
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.errors import UserError
from toolformer.evaluate import calls, clocks, identity

ARGUMENTS = {
    "k": "decoding.k",
    "max_calls": "decoding.max_calls",
    "max_call_tokens": "decoding.max_call_tokens",
    "max_result_tokens": "decoding.max_result_tokens",
    "min_new_tokens": "decoding.min_new_tokens",
    "batch_size": "decoding.batch_size",
    "device": "lm.device",
    "dtype": "lm.dtype",
    "system": "system",
    "experiment": "experiment",
}
"""Short names in `model_args`, and the configuration that they stand for. Beside them: pretrained (an embedded model, a
folder or a hub name), tools (keys joined by "+", or none), answers (a file) and any key of the configuration with a dot."""

MODEL = "toolformer"
"""As `--model`: the class below."""
PUBLISHED = "none"
"""As `--include_path`: no folder of tasks beside lm-eval's own. Some of its names are also names of this project's."""


def run(arguments: Sequence[str]) -> int:
    """lm-eval's command line word for word; returns the exit code.

    As lm-eval's own, it takes its arguments with `run` and without. `--include_path` may be left out, and names are then
    this project's where it has them; `benchmarks` there means this project's tasks wherever the command is given, and
    `none` leaves them out.

    Raises:
        UserError: unknown tasks or model arguments, or data that is missing or of another schema. The data of this
            project's tasks is read before the model is.
    """
    from lm_eval.__main__ import cli_evaluate

    words, request = _with_tasks(arguments)
    if request:
        _check(request)
    sys.argv = ["toolformer lm_eval", *words]
    logging.getLogger("lm_eval.tasks._index").addFilter(_unless_ours)
    try:
        cli_evaluate()
    except ValueError as error:
        name = re.search(r"Tasks not found: ([^,\s]+)", str(error))
        if not name:
            raise
        raise UserError(f"--tasks: there is no task or group {name[1]!r}{_instead(name[1])}") from error
    except ConnectionError as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise UserError(
            f"--tasks: lm-eval cannot read a task's data ({reason}); its published tasks need the hub"
        ) from error
    return 0


def _unless_ours(record: logging.LogRecord) -> bool:
    """That tasks of this project stand for lm-eval's of the same names is so by intent, and said in its pages."""
    if not str(record.msg).startswith("Task '%s' from %s overrides"):
        return True
    _, overriding, _ = record.args or ("", "", "")
    return not Path(str(overriding)).resolve().is_relative_to(TASKS_DIR.resolve())


def _instead(name: str) -> str:
    """What may have been meant by a name that lm-eval does not know."""
    if name in TASKS or name in GROUPS:
        return "; it is this project's, whose folder is left out: name it, --include_path benchmarks"
    return suite.nearest(name)


@dataclass(frozen=True)
class _Request:
    """What the words and a file of `--config` ask lm-eval to run."""

    names: list[str]
    """Tasks and groups, and patterns of them."""
    folders: list[str]
    """Of tasks beside lm-eval's own."""
    metadata: dict[str, Any]
    model_args: dict[str, Any] | None
    """Of this project's model; None if another is asked for."""


def _with_tasks(arguments: Sequence[str]) -> tuple[list[str], _Request | None]:
    """The arguments with `--include_path` naming this project's tasks, where tasks are asked for and nothing else is said.

    With them what they ask for, None where they ask for no evaluation.
    """
    words: list[str] = []
    told = False
    for word in arguments:
        flag, equals, value = word.partition("=")
        path = value if flag == "--include_path" else word if words[-1:] == ["--include_path"] else ""
        told = told or bool(path)
        if _ours(path):
            word = f"{flag}{equals}{TASKS_DIR}" if equals else str(TASKS_DIR)
        if path == PUBLISHED and not Path(path).is_dir():
            words = words if equals else words[:-1]
        else:
            words.append(word)
    if {"ls", "validate"} & set(words[:1]):
        return (words if told else [*words, "--include_path", str(TASKS_DIR)]), None
    if words in ([], ["run"]) or {"-h", "--help"} & set(words):
        return words, None
    asked = _parsed(words)
    if asked is None or not asked.tasks:
        return words, None
    names = asked.tasks if isinstance(asked.tasks, list) else [asked.tasks]
    written = asked.include_path or []
    folders = [str(one) for one in (written if isinstance(written, list) else [written])]
    if [one for one in folders if _ours(one)] and len(folders) > 1:
        raise UserError(f"include_path: of several folders, write {TASKS_DIR} for {TASKS_DIR.name}")
    if not told and (not folders or _ours(folders[0])):
        folders = [str(TASKS_DIR)]
        words += ["--include_path", str(TASKS_DIR)]
    names = [part for name in names if isinstance(name, str) for part in name.split(",")]
    ours = dict(asked.model_args) if asked.model == MODEL else None
    return words, _Request(names, folders, dict(asked.metadata), ours)


def _ours(path: str) -> bool:
    """Whether a path means this project's tasks where it is no folder."""
    return path.rstrip("/") == TASKS_DIR.name and not Path(path).is_dir()


def _parsed(words: Sequence[str]) -> EvaluatorConfig | None:
    """The words as lm-eval takes them, a file of `--config` read in; None where it has to say itself what is wrong."""
    quiet, before = logging.getLogger("lm_eval"), sys.argv
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    sys.argv = ["lm_eval", *words]
    try:
        # It will say all of it again.
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return EvaluatorConfig.from_cli(HarnessCLI().parse_args())
    except SystemExit:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"lm_eval: {' '.join(str(error).split())}") from error
    finally:
        quiet.setLevel(level)
        sys.argv = before


def _check(request: _Request) -> None:
    """Looks at the model's arguments and reads the data of this project's tasks, before the model is loaded.

    Notes what the tasks switch off.

    Raises:
        UserError: there is no such model, an argument is wrong, the data is missing or of another schema, a task is asked
            for twice, or switches off what is no list.
    """
    if request.model_args is not None:
        name, _, _ = _read_arguments(request.model_args)
        loading.check(name)
    ConfiguredLM.switched_off = _switched_off(request.folders)
    if TASKS_DIR.resolve() not in [Path(folder).resolve() for folder in request.folders]:
        return
    patterns = list(dict.fromkeys(request.names))
    ours = [name for one in patterns for name in fnmatch.filter(sorted([*TASKS, *GROUPS]), one)]
    by: dict[str, str] = {}
    for name in ours:
        for task in GROUPS.get(name, (name,)):
            if by.setdefault(task, name) != name:
                raise UserError(
                    f"--tasks: {task} is asked for as {by[task]} and as {name}; name it once (a pattern takes tasks "
                    "and groups)"
                )
    if ours:
        suite.load(ours, request.metadata)


def _switched_off(folders: Sequence[str]) -> dict[str, frozenset[str]]:
    """What each task in these folders says that it may not use; lm-eval's own tasks say nothing."""
    index = TaskManager(include_path=list(folders), include_defaults=False).task_index if folders else {}
    return {
        name: switches.of_metadata((entry.cfg or {}).get("metadata"), str(entry.yaml_path))
        for name, entry in index.items()
    }


@register_model(MODEL)
class ConfiguredLM(ToolformerLM):
    """`--model toolformer`: a `ToolformerLM` made from `model_args` (see `ARGUMENTS`) and the configuration."""

    switched_off: ClassVar[dict[str, frozenset[str]] | None] = None
    """The tools that the command's tasks may not use; None is what this project's tasks say."""

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: dict[str, Any] | None = None
    ) -> ConfiguredLM:
        """`pretrained=FOLDER,k=10,tools=calculator+calendar,...`."""
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> ConfiguredLM:
        """The same from a mapping; `additional_config` is what lm-eval adds (batch size, device).

        Raises:
            UserError: no model, an unknown argument or tool, or a wrong value.
        """
        added = {key: value for key, value in (additional_config or {}).items() if value is not None}
        added.pop("max_batch_size", None)
        # lm-eval's command line asks for cuda:0 and a batch of 1 unless told otherwise, and allows batch_size=auto.
        if str(added.get("device", "")).startswith("cuda") and not torch.cuda.is_available():
            del added["device"]
        if str(added.get("batch_size")) == "1" or str(added.get("batch_size", "")).startswith("auto"):
            del added["batch_size"]
        name, answers, config = _read_arguments({**added, **arg_dict})
        uses_tools = bool(config.tools) and calls(config)
        tools = build.tools(config, inference=True) if uses_tools else {}
        decoder = build.decoder(config, name, tools)
        return cls(
            decoder,
            answers,
            identity(config, name, None, uses_tools),
            clocks=clocks(config) if uses_tools else (),
            switched_off=cls.switched_off,
        )


def _read_arguments(given: Mapping[str, Any]) -> tuple[str, Any, Config]:
    """(model, file of answers, configuration) that `model_args` say.

    Raises:
        UserError: no model, an unknown argument or tool, or a wrong value.
    """
    rest = {name: value for name, value in given.items() if name not in ("pretrained", "answers")}
    if not given.get("pretrained"):
        raise UserError("model_args: pretrained is missing; name an embedded model, a folder or a hub model")
    return str(given["pretrained"]), given.get("answers"), _configured(rest)


def _configured(given: Mapping[str, Any]) -> Config:
    """The configuration of the evaluation stage with what `model_args` say."""
    overrides: list[str] = []
    without_tools = False
    for name, value in given.items():
        if name == "tools":
            without_tools = str(value) in ("", "none", "None")
            if not without_tools:
                overrides.append(f"tools=[{str(value).replace('+', ',')}]")
        elif name in ARGUMENTS or "." in name:
            overrides.append(f"{ARGUMENTS.get(name, name)}={'null' if value is None else value}")
        else:
            known = ["pretrained", "tools", "answers", *ARGUMENTS]
            raise UserError(
                f"model_args: unknown argument {name!r}; known are {', '.join(known)} and keys of the configuration"
            )
    if given.get("system") == "endpoint":
        raise UserError(
            "model_args: for a model served elsewhere use lm-eval's own --model local-completions"
        )
    config = validate(compose("evaluate", overrides))
    build.apply_paths(config)
    if without_tools:
        config.tools = []
    return config
