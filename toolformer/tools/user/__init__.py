"""Tools that are not the paper's: Python functions, MCP servers, OpenAI-compatible endpoints."""
