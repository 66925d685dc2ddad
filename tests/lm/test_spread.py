"""A model whose layers are on several GPUs: when that is, and that it is read as on one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.build import Patch, tiny_model
from toolformer.errors import UserError
from toolformer.jobs import share
from toolformer.jobs.config import compose, validate
from toolformer.lm import devices
from toolformer.lm.placement import place

ROOT = Path(__file__).parents[2]
MODELS = ("llama", "gpt2", "gptj", "opt", "gemma3_text", "mpt")


def machine(monkeypatch: Patch, *memory: int) -> None:
    """GPUs with so many bytes."""
    monkeypatch.setattr(
        devices, "gpus", lambda device="auto": 0 if device == "cpu" or ":" in device else len(memory)
    )
    monkeypatch.setattr(devices, "gpu_memory", lambda: list(memory))
    monkeypatch.setattr(devices, "choose_device", lambda device="auto": "cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int]:
    """A model, and its bytes in float32."""
    path = tmp_path_factory.mktemp("model") / "gpt2"
    model = tiny_model("gpt2", 420)
    model.save_pretrained(path)
    return str(path), 4 * model.num_parameters()


def test_a_model_is_spread_where_one_gpu_has_no_room(folder: tuple[str, int], monkeypatch: Patch) -> None:
    name, size = folder
    for memory, device, expected in (
        ([2 * size] * 2, "auto", False),
        ([size] * 2, "auto", True),
        ([2 * size] * 2, "all", True),
        ([2 * size], "all", False),
        ([size] * 2, "cpu", False),
        ([size // 2], "cuda", False),
        ([size // 2] * 2, "cuda", False),
        ([size // 2] * 2, "cuda:1", False),
        ([], "auto", False),
    ):
        machine(monkeypatch, *memory)
        assert place(name, "float32", device).is_spread() == expected, (memory, device)


@pytest.mark.parametrize(
    ("count", "device", "workers", "said"),
    [
        (1, "auto", 1, "its weights take .* and a GPU has room for .* with lm.device=cuda"),
        (1, "auto", 2, "2 replicas of its weights take .* lower engine.workers"),
        (2, "all", 1, "and 2 GPUs have room for"),
    ],
)
def test_a_model_without_room_is_refused(
    folder: tuple[str, int], count: int, device: str, workers: int, said: str, monkeypatch: Patch
) -> None:
    name, size = folder
    memory = {"all": size // 2}.get(device, size if workers == 1 else 2 * size)
    machine(monkeypatch, *[memory] * count)
    with pytest.raises(UserError, match=said):
        place(name, "float32", device).is_spread(workers)


@pytest.mark.parametrize(
    ("settings", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4}, 4),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4),
        ({"quant_method": "fp8"}, 8),
    ],
)
def test_a_quantised_model_takes_what_its_bits_say(
    folder: tuple[str, int], tmp_path: Path, settings: dict[str, object], bits: int
) -> None:
    config = json.loads((Path(folder[0]) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
    assert place(str(tmp_path), "float32").size == folder[1] * bits / 32
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    assert place(str(tmp_path), "float32").size == 1000


def test_layers_on_two_devices_are_read_as_on_one() -> None:
    """With the probe, a store, stock passes, losses and greedy texts, where every tensor has to be on the right device."""
    command = [sys.executable, "-m", "tests.lm.two_devices", *MODELS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == [*MODELS], done.stderr[-3000:]


def test_one_worker_has_all_gpus(
    folder: tuple[str, int], monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    name, size = folder
    config = validate(compose("evaluate", ["engine.workers=4", "lm.dtype=float32"]))
    machine(monkeypatch, *[size] * 4)
    assert (
        share.fitted(config, place(name, "float32")).engine.workers == 1
        and "spread over all GPUs" in caplog.text
    )
    machine(monkeypatch, *[2 * size] * 4)
    assert share.fitted(config, place(name, "float32")).engine.workers == 4
    machine(monkeypatch, *[2 * size] * 2)
    with pytest.raises(UserError, match="2 replicas of its weights take"):
        share.fitted(config, place(name, "float32"))
