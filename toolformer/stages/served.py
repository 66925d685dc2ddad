"""What an endpoint can be asked, and the model that asks it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolformer.errors import UserError
from toolformer.stages.config import Config
from toolformer.tools.base import Tool

if TYPE_CHECKING:
    from toolformer.decoding.recording import AnswerFile, RecordingLM
    from toolformer.stages.engine.answering import Asked

log = logging.getLogger(__name__)


def possible(config: Config, tasks: list[str]) -> list[str]:
    """The tasks that the system can do: without a tokenizer, an endpoint's log-probabilities mean nothing."""
    api, tokenizer = config.endpoint.api, config.endpoint.tokenizer
    if config.system != "endpoint" or (tokenizer and api == "completions"):
        return tasks
    possible = [task for task in tasks if not task.endswith("_perplexity")]
    needed = "endpoint.tokenizer, the served model's tokenizer (a folder or hub name), and endpoint.api=completions"
    if not possible:
        raise UserError(f"benchmarks: nothing is left to do: perplexity of an endpoint needs {needed}")
    if len(possible) < len(tasks):
        log.warning("evaluate: perplexity skipped: of an endpoint it needs %s", needed)
    return possible


def served(asked: Asked, answers: AnswerFile, tools: Mapping[str, Tool]) -> RecordingLM:
    """An endpoint as lm-eval asks it."""
    from toolformer.decoding.endpoint import EndpointLM
    from toolformer.decoding.endpoint_chat import ChatEndpointLM
    from toolformer.decoding.offers import offer

    config = asked.config
    if config.endpoint.api == "completions":
        return EndpointLM(answers, endpoint=config.endpoint)
    return ChatEndpointLM(
        answers,
        endpoint=config.endpoint,
        identity=asked.identity,
        tools=tools,
        offers={name: offer(name, tool) for name, tool in tools.items()},
        decoding=config.decoding,
        clocks=asked.clocks,
        day=asked.day,
    )
