"""`toolformer lm_eval ...`: lm-eval's own command line with this project's model and tasks in it.

    toolformer lm_eval --model toolformer --model_args pretrained=FOLDER,k=10,tools=calculator+calendar --tasks svamp

lm-eval has no plug-ins, so its command is run from here. Everything but the model and where tasks are looked up is its own.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar

import httpx2
import lm_eval.models  # noqa: F401  lm-eval registers its own models only where none is registered yet
import torch
from lm_eval._cli import HarnessCLI
from lm_eval.api.registry import register_model
from lm_eval.config.evaluate_config import EvaluatorConfig
from lm_eval.tasks import TaskManager
from lm_eval.utils import setup_logging

from toolformer.benchmarks import GROUPS, TASKS, TASKS_DIR
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.decoding.settings import Decoding
from toolformer.errors import UserError, near, one_line
from toolformer.evaluation import suite
from toolformer.jobs import instantiate, steps
from toolformer.jobs.config import Config, compose, effective, validate
from toolformer.jobs.job import Sources

SHORT = {field.name: f"decoding.{field.name}" for field in fields(Decoding)}
SHORT |= {"device": "lm.device", "dtype": "lm.dtype", "system": "system", "experiment": "experiment"}
"""Short names in `model_args` for keys. The others: pretrained (a bundled model, a folder or a hub name), tools (keys joined
by "+", or none), answers (a file) and any key of the configuration."""


def main(arguments: list[str]) -> int:
    """Runs lm-eval's command; returns the exit code.

    Without `--include_path` names are this project's tasks where it has them; `none` leaves them out.
    UserError for unknown tasks or model arguments.
    """
    sys.argv = ["toolformer lm_eval", *arguments]
    setup_logging()
    # That a task of this project replaces lm-eval's of the same name is intended.
    logging.getLogger("lm_eval.tasks._index").setLevel(logging.ERROR)
    command = HarnessCLI()
    parsed = command.parse_args()
    try:
        if hasattr(parsed, "include_path"):
            _look_up_tasks(parsed)
        command.execute(parsed)
    except (ValueError, OSError, TypeError, httpx2.HTTPError) as error:
        if ConfiguredLM.loaded:
            raise
        reason = one_line(error)
        if isinstance(error, httpx2.HTTPError):
            reason = f"the task's data cannot be fetched ({reason}); check the network, or name a task whose data is here"
        if missing := re.search(r"Tasks not found: ([^,\s]+)", reason):
            what = f"there is no task or group {missing[1]!r}{near(missing[1], [*TASKS, *GROUPS])}"
            raise UserError(f"--tasks: {what}") from error
        raise UserError(f"lm_eval: {reason}") from error
    return 0


def _look_up_tasks(parsed: Any) -> None:
    """Sets `--include_path` to this project's tasks if neither the command nor its file names another."""
    config = getattr(parsed, "config", None)
    written = EvaluatorConfig.load_yaml_config(config).get("include_path") if config else None
    include_path = parsed.include_path or written or str(TASKS_DIR)
    folders = [
        folder
        for folder in ([include_path] if isinstance(include_path, str) else include_path)
        if folder != "none"
    ]
    parsed.include_path = ConfiguredLM.folders = folders


@register_model("toolformer")
class ConfiguredLM(ToolformerLM):
    """`--model toolformer`: a `ToolformerLM` made from `model_args` (see `SHORT`)."""

    folders: ClassVar[list[str]] = [str(TASKS_DIR)]
    """Folders of tasks; a task says which tools it may not use."""
    loaded: ClassVar[bool] = False
    """Whether a question has been asked: what fails before is bad input."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        settings = dict(arguments)
        name, answers = str(settings.pop("pretrained", "")), settings.pop("answers", None)
        if not name:
            raise UserError("model_args: pretrained is missing; name a folder or a hub model")
        config = effective(replace(_configured(settings), model=name), "evaluate")
        index = TaskManager(include_path=self.folders, include_defaults=False).task_index
        decoder = instantiate.decoder(config, instantiate.placement(config, name))
        decoder.language_model.load()
        identity = {"model": steps.answer(config, Sources(model=name)).key(without=["decoding"])}
        super().__init__(decoder, answers, identity, clocks=instantiate.clocks(config))
        self.switched_off = {
            task: suite.switched_off((entry.cfg or {}).get("metadata"), str(entry.yaml_path))
            for task, entry in index.items()
        }

    def _key(self, *request: Any) -> str:
        ConfiguredLM.loaded = True
        return super()._key(*request)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> ConfiguredLM:
        """From `model_args`, as lm-eval has parsed them; `additional_config` is what it adds (batch size, device)."""
        added = {name: str((additional_config or {}).get(name)) for name in ("device", "batch_size")}
        # lm-eval's command line asks for cuda:0 and a batch of 1 by default, and allows batch_size=auto.
        if added["device"] == "None" or (
            added["device"].startswith("cuda") and not torch.cuda.is_available()
        ):
            del added["device"]
        if re.fullmatch("None|1|auto.*", added["batch_size"]):
            del added["batch_size"]
        return cls({**added, **arg_dict})

    @property
    def tokenizer_name(self) -> str:
        """In the names of lm-eval's own caches."""
        return self.language_model.name.replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str:
        """The tokenizer's template; UserError if there is none to apply."""
        name, tokenizer = self.language_model.name, self.language_model.tokenizer
        if not tokenizer.chat_template:
            raise UserError(f"--apply_chat_template: {name} has no chat template; leave it out")
        return str(tokenizer.get_chat_template())

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Messages as a prompt, whose special tokens the model then reads as such."""
        self.chat_template()
        self.language_model.reads_special_tokens = True
        try:
            prompt = self.language_model.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        except Exception as error:  # a template is a program
            raise UserError(f"--apply_chat_template: the template fails: {one_line(error)}") from error
        return str(prompt)


def _configured(model_args: Mapping[str, Any]) -> Config:
    """The configuration of the evaluation stage with the settings in `model_args`."""
    overrides = {
        SHORT.get(name, name): "null" if value is None else value for name, value in model_args.items()
    }
    tools = str(overrides.pop("tools", "some"))
    with_tools = tools not in ("", "none", "null")
    if "tools" in model_args and with_tools:
        overrides["tools"] = f"[{tools.replace('+', ',')}]"
    config = validate(compose("evaluate", [f"{key}={value}" for key, value in overrides.items()]))
    if not with_tools:
        config.tools = []
    return config
