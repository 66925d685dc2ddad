"""`toolformer lm_eval ...`: lm-eval's own command line with this project's model and tasks in it.

    toolformer lm_eval --model toolformer --model_args pretrained=FOLDER,k=10,tools=calculator+calendar --tasks svamp

lm-eval has no plug-ins, so its command is run from here. Everything but the model and where tasks are looked up is its own.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from lm_eval._cli import HarnessCLI
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.tasks import TaskManager
from lm_eval.utils import setup_logging, simple_parse_args_string

from benchmarks import GROUPS, TASKS, TASKS_DIR, suite
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.errors import UserError, near, one_line
from toolformer.lm import loading
from toolformer.stages import instantiate
from toolformer.stages.config import Config, compose, validate
from toolformer.stages.evaluate import clocks
from toolformer.stages.evaluation_identity import answered_by, calls

MODEL = "toolformer"
"""As `--model`: the class below."""
DECODING = (
    *("policy", "k", "bias", "threshold"),
    *("max_calls", "max_call_tokens", "max_result_tokens", "min_new_tokens", "batch_size"),
)
SHORT = {**{name: f"decoding.{name}" for name in DECODING}, "device": "lm.device", "dtype": "lm.dtype"}
SHORT |= {"system": "system", "experiment": "experiment"}
"""Short names in `model_args`, and the keys that they stand for. Beside them: pretrained (an embedded model, a folder or a
hub name), tools (keys joined by "+", or none), answers (a file) and any key of the configuration with a dot."""


def main(arguments: list[str]) -> int:
    """Runs lm-eval's command; returns the exit code.

    `--include_path` may be left out: names are then this project's where it has them. `none` leaves them out.

    Raises:
        UserError: unknown tasks or model arguments, or data that is missing or of another schema; it is read before the
            model's weights are.
    """
    sys.argv = ["toolformer lm_eval", *arguments]
    setup_logging()
    # That a task of this project stands for lm-eval's of the same name is intended.
    logging.getLogger("lm_eval.tasks._index").setLevel(logging.ERROR)
    command = HarnessCLI()
    parsed = command.parse_args()
    try:
        if hasattr(parsed, "include_path"):
            ConfiguredLM.folders = _look_up_tasks(parsed)
        command.execute(parsed)
    except (ValueError, ConnectionError, FileNotFoundError, TypeError) as error:
        if ConfiguredLM.loaded:
            raise
        reason = one_line(error)
        if missing := re.search(r"Tasks not found: ([^,\s]+)", reason):
            what = f"there is no task or group {missing[1]!r}{near(missing[1], [*TASKS, *GROUPS])}"
            raise UserError(f"--tasks: {what}") from error
        raise UserError(f"lm_eval: {reason}") from error
    return 0


def _look_up_tasks(parsed: Any) -> list[str]:
    """The folders of tasks beside lm-eval's own; sets `--include_path` to this project's where nothing else is said."""
    config = getattr(parsed, "config", None)
    written = EvaluatorConfig.load_yaml_config(config) if config else {}
    asked = {**written, **{name: value for name, value in vars(parsed).items() if value}}
    folders = asked.get("include_path") or str(TASKS_DIR)
    folders = [folders] if isinstance(folders, str) else list(folders)
    ours = {
        folder for folder in folders if folder.rstrip("/") == TASKS_DIR.name and not Path(folder).is_dir()
    }
    folders = [str(TASKS_DIR) if folder in ours else folder for folder in folders if folder != "none"]
    parsed.include_path = folders[0] if len(folders) == 1 else folders
    return folders


@register_model(MODEL)
class ConfiguredLM(LM):
    """`--model toolformer`: a `ToolformerLM` made from `model_args` (see `SHORT`), loaded at the first request.

    Raises:
        UserError: no model, an unknown argument, or a wrong value.
    """

    folders: ClassVar[list[str]] = [str(TASKS_DIR)]
    """Of tasks, which say what tools they may not use."""
    loaded: ClassVar[bool] = False

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        given = dict(arguments)
        self.name, self.answers = str(given.pop("pretrained", "")), given.pop("answers", None)
        if not self.name:
            raise UserError(
                "model_args: pretrained is missing; name an embedded model, a folder or a hub model"
            )
        self.config = _configured(given)
        self._templated = False
        loading.load_config(self.name)

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
        """The same from a mapping; `additional_config` is what lm-eval adds (batch size, device)."""
        given = {name: str(value) for name, value in (additional_config or {}).items() if value is not None}
        # lm-eval's command line asks for cuda:0 and a batch of 1 unless told otherwise, and allows batch_size=auto.
        if given.get("device", "").startswith("cuda") and not torch.cuda.is_available():
            del given["device"]
        if re.fullmatch("1|auto.*", given.get("batch_size", "")):
            del given["batch_size"]
        added = {name: value for name, value in given.items() if name in SHORT}
        return cls({**added, **arg_dict})

    @functools.cached_property
    def lm(self) -> ToolformerLM:
        config, off = self.config, {}
        if self.folders:
            for name, entry in TaskManager(
                include_path=self.folders, include_defaults=False
            ).task_index.items():
                off[name] = suite.switched_off((entry.cfg or {}).get("metadata"), str(entry.yaml_path))
        tools = instantiate.tools(config, inference=True) if config.tools and calls(config) else {}
        ConfiguredLM.loaded = True
        decoder = instantiate.decoder(config, self.name, tools)
        answered = answered_by(config, self.name, None)
        lm = ToolformerLM(decoder, self.answers, answered, clocks=clocks(config) if tools else ())
        lm.switched_off = off
        return lm

    @functools.cached_property
    def tokenizer(self) -> Any:
        return loading.load_tokenizer(self.name)

    @property
    def tokenizer_name(self) -> str:
        """In the names of lm-eval's own caches."""
        return self.name.replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template, where there are several the one of this name; UserError if there is none."""
        templates = self.tokenizer.chat_template
        if not templates or self.config.system == "chat":
            reason = (
                "system=chat applies the template itself"
                if templates
                else f"{self.name} has no chat template"
            )
            raise UserError(f"--apply_chat_template: {reason}; leave it out")
        named = chat_template if isinstance(chat_template, str) and isinstance(templates, dict) else None
        return str(self.tokenizer.get_chat_template(named))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Messages as a prompt, whose special tokens the model then reads as such."""
        self.chat_template(True)
        self._templated = True
        try:
            prompt = self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        except Exception as error:  # a template is a program
            raise UserError(
                f"--apply_chat_template: the template of {self.name} fails: {one_line(error)}"
            ) from error
        return str(prompt)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return self._asked().generate_until(requests)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return self._asked().loglikelihood(requests)

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return self._asked().loglikelihood_rolling(requests)

    def _asked(self) -> ToolformerLM:
        self.lm.language_model.reads_special_tokens = self._templated
        return self.lm


def _configured(given: Mapping[str, Any]) -> Config:
    """The configuration of the evaluation stage with what `model_args` say."""
    overrides: list[str] = []
    without_tools = str(given.get("tools", "some")) in ("", "none", "None")
    for name, value in given.items():
        if name == "tools":
            overrides += [] if without_tools else [f"tools=[{str(value).replace('+', ',')}]"]
        elif name in SHORT or "." in name:
            overrides.append(f"{SHORT.get(name, name)}={'null' if value is None else value}")
        else:
            known = f"{', '.join(['pretrained', 'tools', 'answers', *SHORT])} and keys of the configuration"
            raise UserError(f"model_args: unknown argument {name!r}; known are {known}")
    if given.get("system") == "endpoint":
        raise UserError(
            "model_args: for a model served elsewhere use lm-eval's own --model local-completions"
        )
    config = validate(compose("evaluate", overrides))
    instantiate.apply_paths(config)
    if without_tools:
        config.tools = []
    return config
