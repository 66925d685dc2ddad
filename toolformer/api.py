"""The Python API: a model that calls tools.

>>> toolformer = Toolformer.from_pretrained("runs/train/<name>/model")    # doctest: +SKIP
>>> toolformer.complete(["The difference between 2169 and 723 is"])[0].text    # doctest: +SKIP
' [Calculator(2169 - 723) -> 1446] 1446.'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolformer.data import Document
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError

if TYPE_CHECKING:
    from toolformer.jobs.config import Config


class Toolformer:
    """A finetuned language model, its tools and its decoding."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, overrides: Sequence[str] = ()) -> Toolformer:
        """Loads a model folder or hub model, with the configured tools.

        `overrides` are configuration as on the command line: `["decoding.k=3", "tools=[calculator]"]`. UserError if it
        is not a causal language model, or the configuration is wrong.
        """
        return cls(_decoder(_config(overrides), str(name_or_path)))

    @classmethod
    def from_config(cls, model: str = "latest", overrides: Sequence[str] = ()) -> Toolformer:
        """As `from_pretrained`, where `latest` or a run id names the model of a train run.

        `system` says which one `latest` is and whether tools are called, as in an evaluation. UserError also if there
        is no such run, or the system has no training.
        """
        from toolformer.jobs import steps
        from toolformer.jobs.train import model_folder
        from toolformer.lm.loading import EMBEDDED_MODELS

        config = _config(overrides)
        is_path = "/" in model or Path(model).exists() or model in (config.model, *EMBEDDED_MODELS)
        if not is_path:
            if not SYSTEMS[config.system].trained_on:
                raise UserError(
                    f"system={config.system} is not trained, so there is no {model} run of it; name a model, such as --model smollm2"
                )
            try:
                run = steps.named_training(replace(config, checkpoint=model))
            except UserError as error:
                if model == steps.LATEST:
                    raise
                raise UserError(f"{error}; write a hub model as OWNER/NAME, another by its folder") from error
            model = str(model_folder(run)) if run else model
        return cls(_decoder(config, model))

    def complete(
        self,
        prompts: Sequence[str],
        documents: Sequence[Document] | None = None,
        *,
        max_new_tokens: int = 40,
        stop: Sequence[str] = (),
    ) -> list[Completion]:
        """Continues each prompt. `text` holds the continuation with its call, `plain` without, `call` the call itself.

        UserError for a bare text in place of a list: each of its characters would be a prompt, or end the continuation.
        """
        _check_list("prompts", prompts)
        _check_list("stop", stop)
        return self.decoder.complete(
            prompts, documents, max_new_tokens=max_new_tokens, stop=stop, strict=True
        )


def _check_list(name: str, value: Sequence[str]) -> None:
    if isinstance(value, str):
        raise UserError(f"{name} is the text {value!r:.60}; give a list of texts, for one [{value!r:.60}]")


def _config(overrides: Sequence[str]) -> Config:
    from toolformer.jobs import instantiate
    from toolformer.jobs.config import compose, validate

    _check_list("overrides", overrides)
    config = validate(compose("evaluate", overrides))
    instantiate.apply_paths(config)
    return config


def _decoder(config: Config, model: str) -> Decoder:
    from toolformer.jobs import instantiate
    from toolformer.jobs.system import System
    from toolformer.training.checkpoints import check_intact

    check_intact(Path(model))
    tools = System(config).tools()
    return instantiate.decoder(config, model, tools)
