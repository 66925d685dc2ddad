"""What a faulty MCP server says: `python raw_mcp_server.py MODE` over standard input and output; `reply` also serves HTTP."""

import json
import os
import stat
import sys
from typing import Any

HUGE = 40_000_000  # characters
LOOKUP = {
    "name": "lookup",
    "description": "Look up a word.",
    "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    "outputSchema": {
        "type": "object",
        "properties": {"meaning": {"type": "string"}},
        "required": ["meaning"],
    },
}


def reply(request: dict[str, Any], mode: str) -> dict[str, Any] | None:
    """The answer to a message of the protocol; None to a notification."""
    method, result = request.get("method"), {}
    if "id" not in request:
        return None
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        info = {"name": "raw", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [LOOKUP]}
    elif method == "tools/call":
        is_pipe = stat.S_ISFIFO(os.fstat(2).st_mode)
        text = {"huge": "boat " * (HUGE // 5), "error": "API key missing: set GLOSS_KEY"}.get(
            mode, f"pipe {is_pipe}"
        )
        result = {"content": [{"type": "text", "text": text}], "isError": mode == "error"}
    else:
        return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no method"}}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


if __name__ == "__main__":
    if sys.argv[1] == "noisy":
        sys.stderr.write("a line of the log\n" * 1_000_000)
    for line in sys.stdin:
        if (answer := reply(json.loads(line), sys.argv[1])) is not None:
            print(json.dumps(answer), flush=True)
