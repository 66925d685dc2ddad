"""User tools: Python functions and MCP servers; and a language model behind an OpenAI-compatible endpoint."""
