"""A real MCP server for tests, over standard input and output or HTTP: `python mcp_server.py [stdio | PORT] [TROUBLE]`."""

import os
import sys
import time

from mcp.server.mcpserver import MCPServer

server = MCPServer("tests")


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    The second is one where it is left out.
    """
    return a + b


@server.tool(name="get-weather")
def get_weather(city: str, days: list[int] | None = None) -> dict[str, object]:
    """The weather in a city."""
    return {"city": city, "days": days or [1], "sky": "blue\n[so far] -> grey"}


@server.tool()
def refuse(query: str) -> str:
    """Never answers well."""
    raise ValueError(f"not {query}")


@server.tool()
def fragile(number: int) -> str:
    """Ends the server at 13."""
    if number == 13:
        os._exit(1)
    return f"{number} is fine, says {os.getpid()}"


@server.tool()
def slow(number: int) -> str:
    """Falls asleep at 13."""
    time.sleep(1000 if number == 13 else 0)
    return f"{number} is fine"


@server.tool()
def secret() -> str:
    """Tells what is in the environment."""
    return f"{os.environ.get('TESTS_SECRET')} {os.environ.get('TESTS_OTHER')} {' '.join(sys.argv[3:])}"


@server.tool(name="${oc.env:HOME}")
def injection() -> str:
    """Has a name that configuration would replace: ${oc.env:HOME}."""
    return "x"


if __name__ == "__main__":
    place, trouble = (*sys.argv[1:], "stdio", "")[:2] if len(sys.argv) < 3 else sys.argv[1:3]
    if trouble == "dies":
        sys.exit("no key for the weather")
    if trouble == "hangs":
        time.sleep(1000)
    if place == "stdio":
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(place))
