"""`toolformer index`: a corpus becomes a search index."""

from __future__ import annotations

import argparse


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        "toolformer index",
        description="make a corpus searchable: toolformer index corpus=jsonl corpus.path=FILE index.path=DIR",
    )
    parser.add_argument(
        "overrides", nargs="*", help="configuration: corpus=..., index.path=DIR, index.backend=bm25 or lucene"
    )
    options = parser.parse_args(arguments)
    from toolformer.config import compose, validate

    config = validate(compose("generate", options.overrides))
    from toolformer import build
    from toolformer.index import index

    build.apply_paths(config)
    folder, count = index(config)
    print(f"{folder}: {count} passages, {config.index.backend}")
    return 0
