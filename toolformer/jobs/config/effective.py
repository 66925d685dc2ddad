"""The configuration as a stage uses it: every value that follows from others is filled in here, once."""

from collections.abc import Collection
from dataclasses import replace

from toolformer.annotation.candidates import ToolSampling
from toolformer.decoding.settings import SYSTEMS
from toolformer.jobs.config.schema import Config, ToolConfig


def effective(config: Config, stage: str) -> Config:
    """The configuration with the tools that a stage uses and no others, each with its threshold.

    An evaluated system that calls no tool has none, and k = 0.
    """
    keys = config.tools if stage != "evaluate" or calls_tools(config) else []
    return replace(
        config,
        tools=list(keys),
        tool={key: _tool(config, key, keys) for key in keys},
        tool_default=ToolSampling(),  # is in each tool
        decoding=config.decoding if keys or stage != "evaluate" else replace(config.decoding, k=0),
    )


def calls_tools(config: Config) -> bool:
    """Whether the configured system calls tools."""
    return SYSTEMS[config.system].calls_tools and config.decoding.k > 0


def _tool(config: Config, key: str, keys: Collection[str]) -> ToolConfig:
    tool = config.tool[key]
    threshold = config.filter_threshold if tool.filter_threshold is None else tool.filter_threshold
    fallback = tool.fallback if tool.fallback in keys else None
    return replace(tool, filter_threshold=threshold, fallback=fallback)


def keeps_by_chance(config: Config) -> bool:
    """Whether calls of a tool in use are kept by chance, which the `seed` decides."""
    return any(config.tool[key].chance is not None for key in config.tools)
