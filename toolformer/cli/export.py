"""`toolformer export dataset` and `toolformer export model`: results for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from toolformer.cli.parser import Parser, configured
from toolformer.credentials import printable
from toolformer.errors import UsageError, UserError

DEFAULT = "datasets"
KINDS = {"dataset": "generate", "model": "train"}
"""Kinds of exports, each with the stage whose run is exported."""


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    parser = Parser("export", "C* as a data set, or a trained model, with a card")
    parser.add_argument(
        "kind", choices=tuple(KINDS), help="dataset (of a generate run) or model (of a train run)"
    )
    parser.add_argument("run", help="a run's id, at least its first six characters, or latest")
    parser.add_argument("folder", help="a new folder")
    example = "format=datasets|trl|dpo|kto trainer.train_on_results=false paths.root=DIR"
    options = parser.parsed(arguments, example)
    if "=" in options.folder or "=" in options.run:
        raise UsageError("name a run and a folder: toolformer export KIND RUN FOLDER")
    _export(options)
    return 0


def _export(options: argparse.Namespace) -> None:
    formats = [
        override.removeprefix("format=") for override in options.overrides if override.startswith("format=")
    ]
    overrides = [override for override in options.overrides if not override.startswith("format=")]
    if options.kind == "model" and formats:
        raise UserError("export model: format= is for export dataset; leave it out")
    config = configured("train", overrides, checked_as="report")
    if options.kind == "dataset" and config.data != "augmented":
        raise UserError(
            f"export dataset: data={config.data} is not exported, only the texts with calls; leave data= out"
        )
    from toolformer import export
    from toolformer.results import Results

    results, folder = Results(Path(config.paths.root)), Path(options.folder).expanduser()
    results.check_root()
    kind = {"data": config.data} if options.kind == "model" else {}
    run = results.resolve(KINDS[options.kind], options.run, config.name, config.seed, **kind)
    if options.kind == "model":
        export.export_model(results, run, folder)
    else:
        export.export_dataset(
            results,
            run,
            folder,
            format=formats[-1] if formats else DEFAULT,
            model=config.model if any(override.startswith("model=") for override in overrides) else None,
            train_on_results=config.trainer.train_on_results,
            limit_per_tool=config.trainer.limit_per_tool,
            seed=config.seed,
        )
    print(printable(str(folder)))
