"""The configuration as a stage uses it: every value that follows from others is filled in here, once."""

from dataclasses import replace

from toolformer.annotation.candidates import ToolSampling
from toolformer.decoding.settings import SYSTEMS, Decoding
from toolformer.jobs.config.schema import Config, ToolConfig


def effective(config: Config, stage: str) -> Config:
    """The configuration with the tools that a stage uses and no others, each with its threshold.

    An evaluated system that calls no tool has none, and k = 0.
    """
    keys = config.tools if stage != "evaluate" or calls_tools(config) else []
    return replace(
        config,
        tools=list(keys),
        tool={key: _tool(config, key) for key in keys},
        tool_default=ToolSampling(),  # is in each tool
        decoding=_decoding(config.decoding, keys) if stage == "evaluate" else config.decoding,
    )


def calls_tools(config: Config) -> bool:
    """Whether the configured system calls tools."""
    return SYSTEMS[config.system].calls_tools and config.decoding.k > 0


def _tool(config: Config, key: str) -> ToolConfig:
    tool = config.tool[key]
    threshold = config.filter_threshold if tool.filter_threshold is None else tool.filter_threshold
    return replace(tool, filter_threshold=threshold)


def _decoding(decoding: Decoding, tools: list[str]) -> Decoding:
    by_tool = {key: k for key, k in (decoding.by_tool or {}).items() if key in tools}
    stand_in = {key: tool for key, tool in (decoding.stand_in or {}).items() if {key, tool} <= {*tools}}
    return replace(decoding, k=decoding.k if tools else 0, by_tool=by_tool or None, stand_in=stand_in or None)
