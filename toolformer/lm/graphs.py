"""Steps of single tokens as CUDA graphs: launched at once, not kernel by kernel. Not yet measured on a GPU."""

import logging
from collections.abc import Callable
from typing import Any

import torch

from toolformer.errors import one_line

log = logging.getLogger(__name__)

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Logits of the tokens [rows] at these positions [rows]."""


class StepGraphs:
    """Captures a step once for each shape, and replays it from then on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._graphs: dict[Any, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        self._store: Any = None
        self._is_off = False

    def __call__(
        self, shape: tuple[int, ...], step: Step, ids: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """The step's logits. `shape` begins with the number of the store's memory: graphs know addresses."""
        if shape[0] != self._store:
            self._graphs.clear()
            self._store = shape[0]
        if self._is_off or ids.device.type != "cuda":
            return step(ids, positions)
        if shape not in self._graphs:
            logits = step(ids, positions)  # libraries set up their workspaces
            graph, inputs = torch.cuda.CUDAGraph(), (ids.clone(), positions.clone())
            try:
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    captured = step(*inputs)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # the model waits for the GPU in its forward pass
                self._is_off = True
                message = "model: %s cannot run as a CUDA graph (%s); its steps are slower"
                log.warning(message, self._name, one_line(error, 100))
                return logits
            self._graphs[shape] = graph, *inputs, captured
        graph, held_ids, held_positions, captured = self._graphs[shape]
        held_ids.copy_(ids)
        held_positions.copy_(positions)
        graph.replay()
        return captured.clone()
