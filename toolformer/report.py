"""Stage 4: the paper's tables from the runs, and the paper's figures beside them."""

from __future__ import annotations

import functools
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from toolformer import build
from toolformer.config import CONF, Config, compose, experiments, validate
from toolformer.credentials import shown_address
from toolformer.provenance import masked_flat
from toolformer.reporting import Report, terminal
from toolformer.reporting import build as build_report
from toolformer.reporting.grammar import quoted
from toolformer.reporting.words import Conf

log = logging.getLogger(__name__)


def composed(*words: str) -> Mapping[str, str]:
    """What a command with these words composes to, flat as runs log it."""
    return masked_flat(asdict(validate(compose("report", list(words)), "report")))


def conf(places: Sequence[str] = ()) -> Conf:
    """The folder conf/, as far as the commands of a report name it, and the words of `places`."""
    settings, tools = (
        sorted(path.stem for path in (CONF / group).glob("*.yaml")) for group in ("setting", "tool")
    )
    # The commands of a report ask for the same again and again.
    return Conf(functools.cache(composed), experiments(), settings, tools, places)


def places(config: Config) -> list[str]:
    """The words that say where these runs are, as far as nothing composes to it; an address without credentials."""
    usual = composed()
    uri = config.tracking.uri or ""
    # A file's name may hold what in an address begins a query.
    address = uri if uri.startswith(("sqlite:", "file:")) else shown_address(uri)
    found = {"paths.root": config.paths.root, "tracking.uri": address}
    return [f"{key}={quoted(value)}" for key, value in found.items() if value and value != usual[key]]


def report(config: Config) -> Report:
    """Writes Markdown, LaTeX, HTML and the figures under the runs folder, and prints the tables."""
    build.apply_paths(config)
    tracker = build.tracker(config.paths.root, config.tracking)
    # `default` is the name of runs that belong to no experiment: they are reported with all others.
    experiment = None if config.name == "default" else config.name
    out = Path(config.paths.root) / "report" / config.name
    where = places(config)
    made = build_report(tracker, experiment, out, config.seed, conf(where))
    terminal(made)
    log.info("report: %s", made.html)
    if made.samples:
        log.info("samples: %s", made.samples)
    log.info("runs: %s, browse them with: %s", tracker.shown_uri, shlex.join(["toolformer", "ui", *where]))
    return made
