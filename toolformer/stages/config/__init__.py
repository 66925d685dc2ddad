"""The typed configuration of all four stages.

`schema` holds the keys, `composition` reads them from conf/ and the command line, `validate` refuses impossible values:
all before any model is loaded.
"""

import hashlib
import json
from typing import Any

from toolformer import __version__
from toolformer.stages.config.composition import CONF as CONF
from toolformer.stages.config.composition import compose as compose
from toolformer.stages.config.composition import taking_tools as taking_tools
from toolformer.stages.config.schema import STAGES as STAGES
from toolformer.stages.config.schema import Config as Config
from toolformer.stages.config.schema import CorpusConfig as CorpusConfig
from toolformer.stages.config.schema import EngineConfig as EngineConfig
from toolformer.stages.config.schema import ToolConfig as ToolConfig
from toolformer.stages.config.schema import register as register
from toolformer.stages.config.validate import validate as validate


def fingerprint(*parts: Any) -> str:
    """A name for a result by what decides it."""
    text = json.dumps([__version__, *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
