"""What a tool's runtime and its cache cost and save, and how long the calculator looks at hostile input, in one run.

    python -m benchmarks.speed.tools [calls=2000] [batch=100] [tools=calculator,calendar,search]

Each tool answers the same calls four times, in microseconds a call: bare; in its runtime without a cache; with an empty
cache; and with one that has all results. Prints a table, and as one JSON object on the last line
`<tool>/warm_cache_vs_bare` (above 1: the cache is slower than the tool) and `hostile_ms`, the longest of the hostile
expressions.
"""

from __future__ import annotations

import datetime
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.arguments import given, run
from benchmarks.speed.machine import show
from toolformer.data import Document
from toolformer.stages import instantiate
from toolformer.stages.config import compose, validate
from toolformer.tools.base import Tool
from toolformer.tools.cache import ResultCache
from toolformer.tools.calculator import Calculator
from toolformer.tools.runtime import ToolRuntime

HOSTILE = {
    "9**9**9": "9**9**9",
    "10^6 digits": "9" * 10**6,
    "10^6 parentheses": "(" * 10**6,
    "99 parentheses": "(" * 99 + "1" + ")" * 99,
    "names": "__import__('os').system('id')",
    "attributes": "(1).__class__.__bases__[0].__subclasses__()",
    "Unicode digits": "١٢٣ * ４",
    "longest product": "*".join(["99999"] * 33),
    "longest quotient": "/".join(["99999"] * 33),
    "lone surrogates": "\ud800" * 10**6,
    "NULs": "\x00" * 10**6,
}
WORDS = "river mountain painter opera treaty engine planet empire violin harbour".split()


def calls(key: str, count: int) -> tuple[list[str], list[Document]]:
    """Distinct calls as a corpus has them: five in a document of 2,000 characters."""
    first = datetime.date(2010, 1, 1)
    documents = [
        Document(f"d{n}", f"{n} " + "Words of a text. " * 120, date=first + datetime.timedelta(n))
        for n in range(-(-count // 5))
    ]
    about = [documents[n // 5] for n in range(count)]
    inputs = {
        "calculator": lambda n: f"({n} + 18.5) * 12 / 7",
        "calendar": lambda n: "",
    }.get(key, lambda n: f"{WORDS[n % 10]} {WORDS[n // 10 % 10]} {n}")
    return [inputs(n) for n in range(count)], about


def microseconds(tool: Tool, inputs: Sequence[str], documents: Sequence[Document], batch: int) -> float:
    """Of a call, asked in batches."""
    started = time.perf_counter()
    for n in range(0, len(inputs), batch):
        tool.run(inputs[n : n + batch], documents[n : n + batch])
    return (time.perf_counter() - started) / len(inputs) * 1e6


def hostile_milliseconds() -> dict[str, float]:
    """Of each hostile expression, the best of three: what the calculator takes, not what else the machine does."""
    tool, document = Calculator(), [Document("d", "")]
    found: dict[str, float] = {}
    for name, text in HOSTILE.items():
        seconds = []
        for _ in range(3):
            started = time.perf_counter()
            tool.run([text], document)
            seconds.append(time.perf_counter() - started)
        found[name] = min(seconds) * 1000
    return found


def main(arguments: Sequence[str]) -> None:
    """Measures and prints."""
    options = given(arguments, {"calls": "2000", "batch": "100", "tools": "calculator,calendar,search"})
    count, batch, keys = int(options["calls"]), int(options["batch"]), options["tools"].split(",")
    config = validate(compose("generate", [f"tools=[{','.join(keys)}]"]))
    ratios: dict[str, float] = {}
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for key, inside in instantiate.tools(config).items():
            assert isinstance(inside, ToolRuntime)
            inputs, documents = calls(key, count)
            cached = ToolRuntime(inside.tool, cache=ResultCache(Path(folder) / f"{key}.sqlite"))
            microseconds(inside.tool, inputs[:batch], documents[:batch], batch)  # what it loads at first
            ways = (inside.tool, ToolRuntime(inside.tool), cached, cached)
            taken = [microseconds(way, inputs, documents, batch) for way in ways]
            rows.append([key, *(f"{value:,.1f}" for value in taken)])
            ratios[f"{key}/warm_cache_vs_bare"] = round(taken[3] / taken[0], 3)
    hostile = hostile_milliseconds()
    notes = [f"{name}: {milliseconds:.3f} ms" for name, milliseconds in hostile.items()]
    figures = {**ratios, "hostile_ms": round(max(hostile.values()), 3)}
    columns = ("tool", "bare", "runtime", "empty cache", "warm cache")
    show("µs a call", columns, rows, figures, ["Hostile expressions:", *notes])


if __name__ == "__main__":
    run("tools", main)
