"""Toolformer: language models that teach themselves to use tools (Schick et al., 2023).

`Toolformer.from_pretrained(folder).complete(["text"])` is the whole Python API; everything else is the
harness of the four stages generate, train, evaluate and report.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolformer.api import Toolformer

__version__ = "0.3.0"
__all__ = ["Toolformer", "__version__"]


def __getattr__(name: str) -> Any:
    # Torch takes seconds to import: it is loaded only when a model is asked for.
    if name == "Toolformer":
        from toolformer.api import Toolformer

        return Toolformer
    raise AttributeError(f"module 'toolformer' has no attribute {name!r}")
