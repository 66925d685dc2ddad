"""Decoding steps of fixed shape, which a GPU runs as one CUDA graph instead of kernel by kernel.

A step of single tokens is hundreds of kernels, most of them shorter than the time that it takes to launch one. A graph
launches all of them at once, if shapes and addresses stay the same: here every step writes into the same buffers, rounded
up to a few shapes, and a mask hides what is not in use.
"""

import logging
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache

from toolformer.errors import one_line
from toolformer.lm.kv_cache import FixedLayer, WriteIndex, layers

log = logging.getLogger(__name__)

EAGER_STEPS = 32
"""Steps of a shape that run kernel by kernel before it is captured: capturing costs as much as a few dozen steps."""
GRAPHS = 16
"""Maximum number of shapes that are captured."""
TOLERANCE = 0.01
"""Largest difference of a graph's logits: it runs the same kernels in the same shape."""
RANKED = 10
"""Number of the most likely tokens whose order a graph must not change."""
KEYS = 256
"""Cached keys are rounded up to a multiple of this."""

Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Cache], torch.Tensor]
"""Logits of ids, visible keys, positions and a cache, as `LanguageModel.forward` takes them."""


class Shape(NamedTuple):
    """Of a step's buffers: rows, tokens per row, and cached keys with those of the step."""

    rows: int
    columns: int
    keys: int


@dataclass(frozen=True)
class _Inputs:
    """The buffers of a step, of one shape."""

    ids: torch.Tensor
    visible: torch.Tensor
    positions: torch.Tensor
    write_index: WriteIndex
    cache: Cache


class StaticSteps:
    """The steps of one model, in the thread that makes this object: there is one set of buffers.

    One cache at a time is in the buffers; it is copied there before its first step.

    Args:
        captures: whether shapes that come back are captured as graphs, which needs a GPU.
    """

    def __init__(self, forward: Forward, name: str, captures: bool) -> None:
        self._method = weakref.WeakMethod(forward)  # the model holds these steps: it would be freed late
        self._name = name
        self._captures = captures
        self._memory: dict[str, torch.Tensor] = {}
        """Flat; the buffers of all shapes are views of its beginnings, and graphs know their addresses."""
        self._graphs: dict[Shape, Any] = {}
        self._graph_memory: Any = None
        self._stream: Any = None
        self._thread = threading.get_ident()
        self._eager: Counter[Shape] = Counter()
        self._loaded: tuple[weakref.ref[Cache], Shape, _Inputs] | None = None
        """The cache that is in the buffers."""

    def __call__(
        self,
        ids: torch.Tensor,
        visible: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache,
        write_index: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits [rows, columns, vocabulary] of `ids`; see `LanguageModel.step`."""
        rows, columns, keys = visible.shape
        width = _round_up(columns)
        if write_index is None:  # after the keys that are cached
            write_index = torch.arange(keys - columns, keys).expand(rows, -1)
            shape = Shape(_round_up(rows), width, -(-(keys - columns + width) // KEYS) * KEYS)
        else:
            shape = Shape(_round_up(rows), width, keys)
        inputs = self._load(cache, shape)
        device = inputs.ids.device
        inputs.ids[:rows, :columns] = ids.to(device)
        inputs.positions[:rows, :columns] = positions.to(device)
        # Unused columns write after the used ones. Unused rows and columns see the first key alone: without any they
        # would write NaN into the buffers.
        unused = torch.arange(keys, keys + width - columns).expand(rows, -1)
        inputs.write_index.index.zero_()
        inputs.write_index.index[:rows] = torch.cat([write_index, unused], dim=1).to(device)
        inputs.visible.zero_()
        inputs.visible[:, :, 0] = True
        inputs.visible[:rows, :columns, :keys] = visible.to(device)
        logits = self._run(shape, inputs)[:rows, :columns].clone()
        for layer, static in zip(layers(cache), layers(inputs.cache), strict=True):
            layer.hold(static.keys[:rows, :, :keys], static.values[:rows, :, :keys])
        return logits

    @property
    def nbytes(self) -> int:
        """Memory of the buffers, which all steps share."""
        return sum(buffer.nbytes for buffer in self._memory.values())

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the thread that uses the buffers."""
        return self._thread == threading.get_ident()

    def _forward(
        self, ids: torch.Tensor, visible: torch.Tensor, positions: torch.Tensor, cache: Cache
    ) -> torch.Tensor:
        forward = self._method()
        assert forward is not None
        return forward(ids, visible, positions, cache)

    def _load(self, cache: Cache, shape: Shape) -> _Inputs:
        """The buffers of this shape, with the cache in them."""
        if self._loaded:
            held, held_shape, inputs = self._loaded
            inside = layers(cache)[0].keys.data_ptr() == layers(inputs.cache)[0].keys.data_ptr()
            if (
                held() is cache and held_shape == shape and inside
            ):  # not if it has grown by several tokens since
                return inputs
            # The buffers are about to be overwritten; a cache that still uses them gets a copy.
            other = held()
            for layer in layers(other) if other is not None else []:
                layer.hold(layer.keys.clone(), layer.values.clone())
            self._loaded = None
            del inputs  # frees buffers that are about to grow
        inputs = self._inputs(cache, shape)
        for layer, static in zip(layers(cache), layers(inputs.cache), strict=True):
            rows, _, before, _ = layer.keys.shape
            # Hidden keys have to be finite: what a row that overflowed has left would make all others NaN.
            static.keys.zero_()
            static.values.zero_()
            static.keys[:rows, :, :before] = layer.keys
            static.values[:rows, :, :before] = layer.values
            layer.hold(static.keys[:rows, :, :before], static.values[:rows, :, :before])
        self._loaded = weakref.ref(cache), shape, inputs
        return inputs

    def _inputs(self, cache: Cache, shape: Shape) -> _Inputs:
        whole = torch.empty(0, dtype=torch.long, device=layers(cache)[0].keys.device)
        write_index = WriteIndex()
        write_index.set(self._buffer("write index", shape[:2], whole), shape.keys)

        def buffer(name: str, state: torch.Tensor) -> torch.Tensor:
            return self._buffer(name, (shape.rows, state.shape[1], shape.keys, state.shape[3]), state)

        fixed: list[Any] = [
            FixedLayer(buffer(f"keys {n}", layer.keys), buffer(f"values {n}", layer.values), write_index)
            for n, layer in enumerate(layers(cache))
        ]
        return _Inputs(
            ids=self._buffer("ids", shape[:2], whole),
            visible=self._buffer("visible", shape, whole.bool()),
            positions=self._buffer("positions", shape[:2], whole),
            write_index=write_index,
            cache=Cache(layers=fixed),
        )

    def _buffer(self, name: str, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        """Memory for a tensor of this shape, of the dtype and on the device of `like`: finite, otherwise anything."""
        size = math.prod(shape)
        if size > len(self._memory.get(name, ())):
            self._graphs.clear()
            self._graph_memory = None  # a pool ends with its graphs
            self._memory.pop(name, None)
            self._memory[name] = like.new_zeros(size)
        return self._memory[name][:size].view(*shape)

    def _run(self, shape: Shape, inputs: _Inputs) -> torch.Tensor:
        if shape in self._graphs:
            graph, logits = self._graphs[shape]
            graph.replay()
            return logits
        logits = self._forward(inputs.ids, inputs.visible, inputs.positions, inputs.cache)
        self._eager[shape] += 1
        if self._captures and self._eager[shape] > EAGER_STEPS and len(self._graphs) < GRAPHS:
            try:
                self._capture(shape, inputs, logits)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # raised where the model waits for the GPU in its forward pass
                self._captures = False
                message = "model: %s cannot run as a CUDA graph (%s); its steps are slower"
                log.warning(message, self._name, one_line(error, 100))
        return logits

    def _capture(self, shape: Shape, inputs: _Inputs, expected: torch.Tensor) -> None:
        """Captures the step that has just run, which writes the same values again. RuntimeError if its logits differ."""
        # One buffer for the logits of all graphs, which would otherwise keep as many of their size.
        logits = self._buffer("logits", expected.shape, expected)
        self._graph_memory = self._graph_memory or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Of the model's device, which need not be the current one: another's would capture nothing.
        self._stream = self._stream or torch.cuda.Stream(expected.device)
        current = torch.cuda.current_stream(expected.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):  # libraries set up their workspaces by stream
            self._forward(inputs.ids, inputs.visible, inputs.positions, inputs.cache)
        current.wait_stream(self._stream)
        options = {"pool": self._graph_memory, "stream": self._stream, "capture_error_mode": "thread_local"}
        # The outer block restores the stream if the capture fails; the inner one then does not.
        with (
            torch.cuda.stream(current),
            torch.cuda.graph(graph, **options),
        ):
            logits.copy_(self._forward(inputs.ids, inputs.visible, inputs.positions, inputs.cache))
        logits.fill_(math.nan)
        graph.replay()
        if not are_equal(logits, expected):
            raise RuntimeError("its replay has other logits")
        self._graphs[shape] = graph, logits


def are_equal(logits: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether logits [..., vocabulary] differ by rounding alone, and rank the same tokens first."""
    close = torch.allclose(logits, expected, rtol=0, atol=TOLERANCE, equal_nan=True)
    most = min(RANKED, logits.shape[-1])
    return close and torch.equal(logits.topk(most).indices, expected.topk(most).indices)


def _round_up(count: int) -> int:
    """To a number with few binary digits: at most a quarter more."""
    step = 1 << max(0, count.bit_length() - 3)
    return -(-count // step) * step
