"""The typed configuration of all four stages (Hydra; top floor).

`schema` holds the keys, `overrides` reads them from conf/ and the command line, `checks` refuses impossible values: all
before any model is loaded.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from toolformer import __version__
from toolformer.config.checks import validate
from toolformer.config.overrides import CONF, compose, experiments, one_line
from toolformer.config.schema import (
    PAPER_SYSTEMS,
    PLAIN,
    STAGES,
    SYSTEMS,
    Config,
    CorpusConfig,
    EngineConfig,
    ToolConfig,
    TrackingConfig,
    register,
)

__all__ = [
    "CONF",
    "PAPER_SYSTEMS",
    "PLAIN",
    "STAGES",
    "SYSTEMS",
    "Config",
    "CorpusConfig",
    "EngineConfig",
    "ToolConfig",
    "TrackingConfig",
    "compose",
    "experiments",
    "fingerprint",
    "one_line",
    "register",
    "validate",
]


def fingerprint(*parts: Any) -> str:
    """A name for a result by what decides it."""
    text = json.dumps([__version__, *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
