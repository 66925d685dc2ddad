"""What a model's folder holds, looked at before anything is built: whether its weights and tokenizer can be loaded, what to
do with those that cannot. And a loaded model: whether its weights are all that the configuration names, no others, and numbers.
"""

import json
import pickle
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
import transformers
from safetensors import SafetensorError, safe_open

from toolformer.errors import UserError

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
"""Weights that are loaded: safetensors, and PyTorch's own files as data (`weights_only`)."""
OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.onnx", "*.pkl")
TOKENIZERS = ("tokenizer*", "vocab.*", "*.model", "*.tiktoken")
_POINTER = b"version https://git-lfs.github.com/"
# The names under which Transformers saves weights: one file, or several with their number.
_SAVED = re.compile(r"(?:pytorch_)?model(?:-\d+-of-(\d+))?\.(safetensors|bin)")
_ROWS_COMPARED = 8
OWN_CODE = "it needs code of its own, which is never run", "name a model that Transformers has built in"
"""Diagnosis and remedy for a model whose folder brings code."""


def check_kind(path: Path, name: str) -> None:
    """UserError for a file or folder that is not a whole model of Transformers; says how to make one of it."""
    if path.suffix == ".gguf" or (_has(path, ["*.gguf"]) and not _has(path, WEIGHTS)):
        raise UserError(
            f"model: {name} is a GGUF file; convert it: AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE)"
            ".save_pretrained(NEW), the same with AutoTokenizer, and name NEW"
        )
    if (path / "adapter_config.json").is_file():
        raise UserError(
            f"model: {name} is an adapter, not a whole model; merge it into its base model with peft (merge_and_unload, "
            "then save_pretrained), and name the merged folder"
        )
    if not (path / "config.json").is_file():
        raise UserError(
            f"model: {name} is not a model folder (it has no config.json); name a folder with config.json, or a hub model"
        )
    if path.is_dir():
        _check_one_set(path, name)


def check_code(config: Any, name: str) -> None:
    """UserError for a model of a known type whose own code computes something else: its architecture is not Transformers'."""
    known = [hasattr(transformers, architecture) for architecture in config.architectures or ()]
    if getattr(config, "auto_map", None) and known and not any(known):
        raise UserError(f"model: {name} cannot be loaded: {'; '.join(OWN_CODE)}")


def _check_one_set(folder: Path, name: str) -> None:
    """UserError for Git LFS pointers in place of weights, and for two sets of weights in the format that is loaded.

    Which of two sets is newer cannot be known, and Transformers would load one of them without a word.
    """
    sets = _sets_of_weights(folder)
    kind = "safetensors" if any(kind == "safetensors" for kind, _ in sets) else "bin"
    loaded = [files for (format, _), files in sets.items() if format == kind]
    _check_fetched(chain.from_iterable(loaded), name)
    if len(loaded) > 1:
        first, second = sorted(min(files).name for files in loaded)[:2]
        raise UserError(
            f"model: {name} has two sets of weights ({first} and {second}), one of them from an earlier save; remove its "
            "files"
        )


def _check_fetched(files: Iterable[Path], name: str) -> None:
    """UserError if one of the files is a Git LFS pointer: a text in place of a file that was not fetched."""
    for file in sorted(files):
        with suppress(OSError), file.open("rb") as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                raise UserError(
                    f"model: {file.name} in {name} is a Git LFS pointer, not the file itself; run `git lfs pull` in that folder"
                )


def _sets_of_weights(folder: Path) -> dict[tuple[str, str | None], list[Path]]:
    """The files of weights by format and by the number in their names; those of an index that names only others are a set, too."""
    sets: dict[tuple[str, str | None], list[Path]] = {}
    for file in folder.iterdir():
        if match := _SAVED.fullmatch(file.name):
            sets.setdefault((match[2], match[1]), []).append(file)
    for index in folder.glob("*model.*.index.json"):
        named: list[Path] = []
        with suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
            names = {Path(name).name for name in json.loads(index.read_bytes())["weight_map"].values()}
            named = [folder / name for name in sorted(names) if (folder / name).is_file()]
        if named and not any(_SAVED.fullmatch(file.name) for file in named):
            sets[index.name.split(".")[1], index.name] = named
    return sets


def weights_size(folder: Path) -> int:
    """Bytes of the files of weights that are loaded; 0 if there are none."""
    sets = _sets_of_weights(folder)
    kind = "safetensors" if any(kind == "safetensors" for kind, _ in sets) else "bin"
    return sum(file.stat().st_size for (format, _), files in sets.items() if format == kind for file in files)


def _check_formats_agree(folder: Path, name: str) -> None:
    """UserError if safetensors, which are loaded, differ from weights in PyTorch's own format beside them.

    Many models of the hub have both. Of each weight, rows spread over it are compared, in the coarser of both precisions. What
    cannot be read, or has no weight in common but for a prefix of the names, is not a second set.
    """
    files = list(chain.from_iterable(_sets_of_weights(folder).values()))
    loaded = [file for file in files if file.suffix == ".safetensors"]
    if not loaded:
        return
    others: dict[str, tuple[torch.Tensor, Path]] = {}
    with suppress(OSError, RuntimeError, ValueError, EOFError, AttributeError, pickle.UnpicklingError):
        for file in (file for file in files if file.suffix == ".bin"):
            weights = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zipfile(file))
            others |= {key: (weight, file) for key, weight in weights.items()}
    for file in loaded if others else ():
        with suppress(OSError, SafetensorError), safe_open(file, "pt") as stored:
            for key, other_key in _same_names(list(stored.keys()), list(others)).items():
                other, other_file = others[other_key]
                if not _agree(stored, key, other):
                    raise UserError(
                        f"model: {name} has two sets of weights, which differ in {key} ({file.name} and {other_file.name}), one "
                        "of them from an earlier save; remove its files"
                    )


def _same_names(first: Sequence[str], second: Sequence[str]) -> dict[str, str]:
    """Names in `first` with the same in `second`, where all of one may have a further prefix: `model.`, `module.`."""
    known, longest = set(second), max(first, key=len, default="")
    added = {"", *(key.removesuffix(longest) for key in second if key.endswith(f".{longest}"))}
    dropped = [longest[: match.end()] for match in re.finditer(r"\.", longest)]
    pairs = [{key: f"{prefix}{key}" for key in first} for prefix in added]
    pairs += [{key: key.removeprefix(prefix) for key in first} for prefix in dropped]
    return max(({key: other for key, other in names.items() if other in known} for names in pairs), key=len)


def _agree(stored: Any, key: str, other: torch.Tensor) -> bool:
    """Whether a weight in safetensors is another one, as far as some of its rows show it."""
    weight = stored.get_slice(key)
    if weight.get_shape() != list(other.shape):
        return False
    if not other.dim():
        return _is_same(stored.get_tensor(key), other)
    last = len(other) - 1
    rows = {n * last // (_ROWS_COMPARED - 1) for n in range(_ROWS_COMPARED)} if len(other) else ()
    return all(_is_same(weight[row : row + 1], other[row : row + 1]) for row in rows)


def _is_same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two weights are equal in the coarser of their precisions."""
    kinds = {first.dtype, second.dtype}
    if len(kinds) > 1 and all(kind.is_floating_point for kind in kinds):
        coarser = max(kinds, key=lambda kind: torch.finfo(kind).eps)
        first, second = first.to(coarser), second.to(coarser)
    # Two halves of one weight were rounded once each, so that they may differ by a step.
    rounding = torch.finfo(torch.bfloat16).eps if kinds == {torch.float16, torch.bfloat16} else 0.0
    return torch.allclose(first.float(), second.float(), rounding, rounding * 1e-5, equal_nan=True)


def check_weights(folder: Path, name: str) -> None:
    """UserError for a folder without weights that can be loaded, or with two sets of them."""
    _check_formats_agree(folder, name)
    if not any(path.stat().st_size for pattern in WEIGHTS for path in folder.glob(pattern)):
        advice = "copy or download its *.safetensors or pytorch_model.bin into it"
        if _has(folder, OTHER_WEIGHTS):
            advice = "convert what it has: load it where it was made, and save it with save_pretrained"
        raise UserError(f"model: {name} has no weights that can be read safely; {advice}")


def check_tokenizer(folder: Path, name: str) -> None:
    """UserError for a folder without any file of a tokenizer."""
    if not _has(folder, TOKENIZERS):
        raise UserError(
            f"model: {name} has no tokenizer; copy tokenizer.json and tokenizer_config.json of the model that it was "
            "made from into it"
        )
    _check_fetched(chain.from_iterable(folder.glob(pattern) for pattern in TOKENIZERS), name)


def check_loaded(model: Any, missing: Iterable[str], unexpected: Iterable[str], name: str) -> None:
    """UserError for a model in main memory whose weights are not those of its configuration, or not numbers.

    Args:
        missing: weights that the files lack, which Transformers fills with random numbers.
        unexpected: weights that Transformers did not load.
    """
    if lacking := sorted(missing):
        raise UserError(
            f"model: {name} lacks weights that its config.json names: {_some(lacking)}; get its missing files, or the "
            "config.json that belongs to them"
        )
    if surplus := sorted(key for key in unexpected if _belongs_to_a_layer(model, key)):
        raise UserError(
            f"model: {name} has weights that its config.json does not name: {_some(surplus)}; get the config.json that "
            "belongs to them"
        )
    if damaged := [key for key, weight in model.named_parameters() if not _is_finite(weight)]:
        raise UserError(
            f"model: {name} has weights that are infinite or not numbers: {_some(damaged)}; its files are damaged, or "
            "beyond what lm.dtype=float16 holds"
        )


def _belongs_to_a_layer(model: Any, key: str) -> bool:
    """Whether a weight is of a layer too many, or of a part that the configuration turns off in a layer.

    Anything beside the layers (a tower for images, a head for values) may be left out, and so may masks that older releases
    saved as `attn.bias`.
    """
    match = re.match(r"(.+?)\.\d+\..*?([^.]+)$", key)
    layers = (name for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList))
    if not match or not any(f".{name}".endswith(f".{match[1]}") for name in layers):
        return False
    owner = dict(model.named_modules()).get(key.rpartition(".")[0])
    if match[2] == "bias" and owner is not None:
        return "bias" in owner._parameters  # None: switched off
    return match[2] == "bias" or match[2].startswith("weight")


def _is_finite(weight: torch.Tensor) -> bool:
    if not weight.is_floating_point() or weight.itemsize < 2 or not weight.numel():  # quantised, or elsewhere
        return True
    return bool(torch.stack(torch.aminmax(weight.detach())).isfinite().all())


def _some(keys: Sequence[str]) -> str:
    """The first two names, and how many there are besides."""
    return ", ".join(keys[:2]) + (f" and {len(keys) - 2} more" if len(keys) > 2 else "")


def diagnosis(error: Exception) -> tuple[str, str] | None:
    """Diagnosis and remedy, by Transformers' error, for a model that it does not know; None for another error."""
    if "trust_remote_code" in str(error):
        return OWN_CODE
    if kind := re.search(r"has model type `(?!None`)(.+?)` but Transformers does not recognize", str(error)):
        return (
            f"its type {kind[1]} is unknown to Transformers {transformers.__version__}",
            "it may be newer: install a newer Transformers if there is one, or name another model",
        )
    return None


def advice(folder: Path) -> str:
    """Advice for a model whose files cannot be loaded."""
    if kind := _quantisation(folder):
        return f"its weights are quantised ({kind}): install what reads them, or name the model that is not quantised"
    return "its files are damaged or do not belong together: copy or download them again, or train it again"


def _quantisation(folder: Path) -> str | None:
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        settings = json.loads((folder / "config.json").read_bytes()).get("quantization_config")
        return str(settings.get("quant_method", "unknown"))[:40] if settings else None
    return None


def _has(folder: Path, patterns: Iterable[str]) -> bool:
    return any(True for pattern in patterns for _ in folder.glob(pattern))
