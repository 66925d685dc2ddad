"""User tools: Python functions and MCP servers; and a language model served by an OpenAI-compatible endpoint."""
