"""The typed configuration of all four stages.

`schema` holds the keys, `composition` reads them from conf/ and the command line, `validate` refuses impossible values:
all before any model is loaded.
"""

from toolformer.stages.config.composition import CONF as CONF
from toolformer.stages.config.composition import compose as compose
from toolformer.stages.config.composition import with_like as with_like
from toolformer.stages.config.schema import Config as Config
from toolformer.stages.config.schema import CorpusConfig as CorpusConfig
from toolformer.stages.config.schema import EngineConfig as EngineConfig
from toolformer.stages.config.schema import ToolConfig as ToolConfig
from toolformer.stages.config.schema import register as register
from toolformer.stages.config.validate import validate as validate
