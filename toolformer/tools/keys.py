"""What the keys of a tool's configuration decide besides its answers. Knows no tool."""

from __future__ import annotations

HANDLING = ("cache", "workers", "batch_size")
"""How calls are handed to it, which decides no answer of a tool that keeps its promise."""
PATIENCE = ("timeout", "tries")
"""What only decides whether a call meets a fault."""
ANNOTATING = (
    *("prompt", "instruction", "demonstrations", "example", "selector", "start_threshold", "max_positions"),
    *("samples", "filter_threshold", "max_call_tokens"),
)
"""How its calls are annotated: nothing at inference reads them."""
OF_SOURCES = ("toolformer.tools.functions.FunctionTool", "toolformer.tools.mcp_tools.McpTool")
"""What implements a tool of tool_sources, a function or one of a server: its source says all of the implementation."""
