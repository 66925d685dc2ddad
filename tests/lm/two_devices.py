"""Two devices that are made up: their tensors are in main memory and are computed with there, but know which device they are on, and an
operation on tensors of two devices fails, as it does on GPUs.

    python -m tests.lm.two_devices llama gpt2

reads tiny models whose layers are on both, as Accelerate places them, and compares them with the same models on one. It is a program,
since a process keeps its kinds of devices.
"""

import copy
import sys
from typing import Any

import torch
from accelerate import dispatch_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.build import tiny_tokenizer
from tests.lm.families import tiny
from tests.lm.replay import Replay
from toolformer.lm.fast_linear import SmallBatchLinear
from toolformer.lm.language_model import LanguageModel

FIRST, SECOND = "made_up:0", "made_up:1"
TEXTS = ["Joe Biden was born in Scranton", "18 + 12 x 3 = 54"]
aten = torch.ops.aten
MOVES = (aten.copy_, aten._to_copy, aten.to, aten.lift_fresh)
"""Operations between devices."""
INDEXES = (aten.index, aten.index_put, aten.index_put_)
"""Operations whose indices may be in main memory."""


class Placed(torch.Tensor):
    """A tensor on a made-up device."""

    held: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: torch.Tensor, device: torch.device) -> "Placed":
        made: Placed = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=device,
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return perform(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.cpu().tolist()


class Machine(TorchDispatchMode):
    """In the block there are two devices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return perform(func, args, kwargs or {})


def perform(func: Any, args: Any, kwargs: Any) -> Any:
    """An operation, with its results on the device of its arguments. RuntimeError if these are on two."""
    leaves, form = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    kind = func.overloadpacket
    if kind not in MOVES:
        check(func, args[1] if kind in INDEXES else [], tensors)
    asked = next((leaf for leaf in leaves if isinstance(leaf, torch.device)), None)
    holders = args[:1] if kind in (aten.copy_, *INDEXES) else tensors
    device = asked or next((leaf.device for leaf in holders if isinstance(leaf, Placed)), torch.device("cpu"))
    inner_args, inner_kwargs = tree_unflatten([in_memory(leaf) for leaf in leaves], form)
    result = func(*inner_args, **inner_kwargs)
    for argument, given in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info and argument.alias_info.is_write and isinstance(given, torch.Tensor):
            return given  # which it has changed
    if device.type == "cpu":
        return result
    return tree_map_only(torch.Tensor, lambda tensor: Placed(tensor, device), result)


def in_memory(leaf: Any) -> Any:
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    return leaf.held if isinstance(leaf, Placed) else leaf


def check(func: Any, indices: Any, tensors: Any) -> None:
    """RuntimeError for tensors on two devices, but for single numbers and indices in main memory."""
    of_index = [id(tensor) for tensor in indices if tensor is not None and tensor.device.type == "cpu"]
    devices = {tensor.device for tensor in tensors if tensor.dim() and id(tensor) not in of_index}
    if len(devices) > 1:
        raise RuntimeError(f"{func}: tensors are on {', '.join(sorted(map(str, devices)))}")


def places(model: Any) -> dict[str, str]:
    """The parts of a model with two layers: the second device has the last layer and what follows it."""
    inner, name = model, ""
    while not any(isinstance(part, torch.nn.ModuleList) for part in inner.children()):
        name, inner = next(
            (f"{name}{key}.", part) for key, part in inner.named_children() if key != "lm_head"
        )
    placed: dict[str, str] = {}
    for key, part in inner.named_children():
        if isinstance(part, torch.nn.ModuleList):
            placed |= {f"{name}{key}.0": FIRST, f"{name}{key}.1": SECOND}
        else:
            placed[f"{name}{key}"] = SECOND if SECOND in placed.values() else FIRST
    is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    return placed | {"lm_head": FIRST if is_tied else SECOND}


def compare(name: str) -> None:
    """AssertionError unless a model on both devices is read as on one."""
    alone = tiny(name)
    model = copy.deepcopy(alone.model)
    model.set_attn_implementation("eager")  # the other chooses a kernel by the device
    for module in model.modules():
        if isinstance(module, SmallBatchLinear):
            module.__class__ = torch.nn.Linear
    placed = places(model)
    dispatch_model(model, placed, skip_keys=[*(model._skip_keys_device_placement or ())])
    model.hf_device_map = placed
    assert {str(parameter.device) for parameter in model.parameters()} == {FIRST, SECOND}
    spread = LanguageModel(model, tiny_tokenizer(), name)
    assert (str(spread.device), spread.is_spread, spread.is_plain) == (FIRST, True, alone.is_plain)
    replay = Replay(spread, seed=3)
    replay.perform(
        ["read", "read_every", "read_one", "fork", "step", "step", "rewind", "read_one", "free", "read"]
    )
    for (found, _), (expected, _) in zip(
        *(each.rolling_log_likelihoods(TEXTS) for each in (spread, alone)), strict=True
    ):
        assert abs(found - expected) < 1e-3
    assert spread.generate(TEXTS, 8) == alone.generate(TEXTS, 8)


if __name__ == "__main__":
    _setup_privateuseone_for_python_backend("made_up")
    torch._C._set_only_lift_cpu_tensors(True)  # what is made of numbers is made in main memory and moved
    for each in sys.argv[1:]:
        tiny(each)
        with Machine():
            compare(each)
        print(each)
