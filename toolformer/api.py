"""The Python API: a model that calls tools.

>>> toolformer = Toolformer.from_pretrained("runs/train/<name>/model")    # doctest: +SKIP
>>> toolformer.complete(["The difference between 2169 and 723 is"])[0].text    # doctest: +SKIP
' [Calculator(2169 - 723) -> 1446] 1446.'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from toolformer.annotation.score import gains
from toolformer.calls import ApiCall, CallSyntaxError, parse
from toolformer.data import Document
from toolformer.decoding.decoder import Completion, Decoder
from toolformer.decoding.settings import SYSTEMS
from toolformer.errors import UserError
from toolformer.lm.results import with_result

if TYPE_CHECKING:
    from toolformer.jobs.config import Config


class Toolformer:
    """A finetuned language model, its tools and its decoding: `complete` texts with calls, and measure the `gain` of calls."""

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
        from toolformer.jobs.instantiate import finished_results
        from toolformer.jobs.outputs import model_folder
        from toolformer.jobs.sources import LATEST, named_training
        from toolformer.lm.loading import EMBEDDED_MODELS

        config = _config(overrides)
        is_path = "/" in model or Path(model).exists() or model in (config.model, *EMBEDDED_MODELS)
        if not is_path:
            if not SYSTEMS[config.system].trained_on:
                raise UserError(
                    f"system={config.system} is not trained, so there is no {model} run of it; name a model, such as --model smollm2"
                )
            try:
                run = named_training(replace(config, checkpoint=model), finished_results(config))
            except UserError as error:
                if model == LATEST:
                    raise
                raise UserError(
                    f"{error}; write a hub model as OWNER/NAME, or give a model folder"
                ) from error
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

        Raises UserError if `prompts` or `stop` is a string: each of its characters would be a prompt, or end the continuation.
        """
        _check_list("prompts", prompts)
        _check_list("stop", stop)
        return self.decoder.complete(
            prompts, documents, max_new_tokens=max_new_tokens, stop=stop, strict=True
        )

    @overload
    def gain(self, text: str, position: int, call: ApiCall | str, result: str) -> float: ...

    @overload
    def gain(
        self,
        text: Sequence[str],
        position: Sequence[int],
        call: Sequence[ApiCall | str],
        result: Sequence[str],
    ) -> list[float]: ...

    def gain(
        self,
        text: str | Sequence[str],
        position: int | Sequence[int],
        call: ApiCall | str | Sequence[ApiCall | str],
        result: str | Sequence[str],
    ) -> float | list[float]:
        """How much a call's result helps the model to predict the text that follows: L⁻ − L⁺ in nats (paper, section 2).

        It is what an annotation by the same model stores of a call; the paper keeps calls of a gain of at least τ_f = 1.
        Lists of equal length give a list, scored together in batches.

        >>> toolformer.gain("It was 14 - 23 = -9 degrees.", 16, "Calculator(14 - 23)", "-9")    # doctest: +SKIP
        2.0

        Args:
            text: a plain text, without calls.
            position: the character of the text before which the call goes; a token begins there.
            call: such as `Calculator(14 - 23)`, with or without brackets.
            result: the tool's answer; cut, as everywhere, to the tool's `max_result_tokens`.

        UserError for a position inside of a token, a text that is not a call, or lists of different lengths.
        """
        if isinstance(text, str):
            arguments: list[tuple[Any, ...]] = [(text, position, call, result)]
        else:
            lists = {"text": text, "position": position, "call": call, "result": result}
            for name, values in lists.items():
                if isinstance(values, str | int | ApiCall) or len(values) != len(text):
                    raise UserError(f"{name}: expected a list of {len(text)} items, one per text")
            arguments = [*zip(*lists.values(), strict=True)]
        documents = {text: Document(str(n), text) for n, (text, *_) in enumerate(arguments)}
        found = gains(
            self.decoder.language_model,
            [
                (documents[text], position, self._executed(call, result))
                for text, position, call, result in arguments
            ],
        )
        return found[0] if isinstance(text, str) else found

    def _executed(self, call: ApiCall | str, result: str) -> ApiCall:
        """A call with its result, as an annotation or an answer has it."""
        try:
            parsed = (
                call
                if isinstance(call, ApiCall)
                else parse(call if call.lstrip()[:1] == "[" else f"[{call}]")
            )
        except CallSyntaxError as error:
            raise UserError(f"call: {call!r:.80} is not a call ({error}); write Tool(input)") from error
        key = next((key for key, tool in self.decoder.tools.items() if tool.name == parsed.tool), "")
        limit = self.decoder.how(key).max_result_tokens
        return with_result(self.decoder.language_model, parsed, result, limit)


def _check_list(name: str, value: Sequence[str]) -> None:
    if isinstance(value, str):
        raise UserError(f"{name} is the string {value!r:.60}; give a list: [{value!r:.60}]")


def _config(overrides: Sequence[str]) -> Config:
    from toolformer.jobs.config import compose, validate

    _check_list("overrides", overrides)
    config = validate(compose("evaluate", overrides))
    return config


def _decoder(config: Config, model: str) -> Decoder:
    from toolformer.jobs import instantiate
    from toolformer.jobs.config import effective
    from toolformer.training.checkpoints import check_intact

    check_intact(Path(model))
    config = effective(config, "evaluate")
    decoder = instantiate.decoder(config, instantiate.placement(config, model))
    decoder.language_model.load()
    return decoder
