"""The typed configuration of all four stages.

`schema` holds the keys, `composition` reads them from conf/ and the command line, `validate` refuses impossible values:
all before any model is loaded.
"""

from toolformer.jobs.config.composition import CONF as CONF
from toolformer.jobs.config.composition import compose as compose
from toolformer.jobs.config.composition import with_like as with_like
from toolformer.jobs.config.effective import effective as effective
from toolformer.jobs.config.schema import Config as Config
from toolformer.jobs.config.schema import CorpusConfig as CorpusConfig
from toolformer.jobs.config.schema import EngineConfig as EngineConfig
from toolformer.jobs.config.schema import ToolConfig as ToolConfig
from toolformer.jobs.config.schema import register as register
from toolformer.jobs.config.validate import validate as validate
