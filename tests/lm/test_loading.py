"""Loading a model: what is refused in one line, what is read, and that no code of a folder runs."""

import contextlib
import json
import re
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load, load_file, save, save_file
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, MptConfig, PreTrainedTokenizerFast
from transformers import Gemma3Config as MultimodalGemma3

from tests.build import Patch, t5_tokenizer, tiny_model, tiny_t5, tiny_tokenizer
from toolformer.errors import UserError
from toolformer.lm import devices, loading
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.lazy import LazyLanguageModel
from toolformer.lm.placement import place
from toolformer.lm.seq2seq import Seq2SeqModel


def saved(folder: Path, model: Any, tokenizer: Any = None) -> Path:
    """A model's folder."""
    model.save_pretrained(folder)
    (tokenizer or tiny_tokenizer()).save_pretrained(folder)
    return folder


def without(folder: Path, *parts: str) -> None:
    """Removes the weights whose names contain one of these parts."""
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not any(part in name for part in parts)}
    assert len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def set_config(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def change_a_shape(data: bytes) -> bytes:
    weights = load(data)
    name = next(name for name in weights if name.endswith("wte.weight"))
    return save(weights | {name: weights[name][:, :-1].contiguous()}, {"format": "pt"})


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A tiny Llama without tied weights."""
    return saved(tmp_path / "llama", tiny_model("llama", len(tiny_tokenizer())))


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of a tiny GPT-2, whose output weights are tied."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "copied"))


@pytest.mark.parametrize("part", ["lm_head.weight", "layers.1.mlp.up_proj.weight"])
def test_a_model_without_one_of_its_weights_is_refused(part: str, llama: Path) -> None:
    without(llama, part)
    with pytest.raises(
        UserError, match=rf"lacks weights that its config.json names: \S*{part}; get its missing"
    ):
        LanguageModel.from_pretrained(llama)


def test_a_model_with_more_layers_than_weights_is_refused(llama: Path) -> None:
    set_config(llama, num_hidden_layers=4)
    with pytest.raises(
        UserError, match=r"lacks weights .*model.layers.2.input_layernorm.weight.* and 16 more"
    ):
        LanguageModel.from_pretrained(llama)


def test_a_model_with_fewer_layers_than_weights_is_refused(llama: Path) -> None:
    set_config(llama, num_hidden_layers=1)
    with pytest.raises(
        UserError, match=r"config.json does not name: model.layers.1.input_layernorm.weight, .* and 7 more"
    ):
        LanguageModel.from_pretrained(llama)


def add_weights(folder: Path, *names: str) -> None:
    weights = load_file(folder / "model.safetensors") | {name: torch.ones(16) for name in names}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("part", ["k_proj.bias", "q_norm.weight"])
def test_a_part_that_is_switched_off_is_refused(part: str, llama: Path) -> None:
    add_weights(llama, f"model.layers.0.self_attn.{part}")
    with pytest.raises(UserError, match=f"config.json does not name: model.layers.0.self_attn.{part}; get"):
        LanguageModel.from_pretrained(llama)


def test_what_is_beside_the_layers_is_left_out(llama: Path) -> None:
    add_weights(
        llama, "model.layers.0.self_attn.bias", "v_head.weight", "vision.layers.0.weight", "mtp.0.weight"
    )
    LanguageModel.from_pretrained(llama)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_numbers_are_refused(value: float, llama: Path) -> None:
    weights = load_file(llama / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 2] = value
    save_file(weights, llama / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="infinite or not numbers: model.layers.1.mlp.up_proj.weight; its"):
        LanguageModel.from_pretrained(llama)


def test_an_encoder_decoder_without_a_weight_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "t5", tiny_t5(len(t5_tokenizer())), t5_tokenizer())
    Seq2SeqModel(str(folder), "float32", "cpu")
    without(folder, "decoder.block.0.layer.2.DenseReluDense.wo.weight")
    with pytest.raises(UserError, match="lacks weights that its config.json names: decoder.block.0.layer.2"):
        Seq2SeqModel(str(folder), "float32", "cpu")


def test_tied_weights_are_not_missing(copied: Path) -> None:
    assert "lm_head.weight" not in load_file(copied / "model.safetensors")
    LanguageModel.from_pretrained(copied)


@pytest.mark.parametrize("sizes", [{"hidden_size": 64}, {"vocab_size": 1000}, {"intermediate_size": 16}])
def test_sizes_that_are_not_the_weights_are_refused(sizes: dict[str, int], llama: Path) -> None:
    set_config(llama, **sizes)
    with pytest.raises(UserError, match=r"llama cannot be loaded .*do not belong together") as caught:
        LanguageModel.from_pretrained(llama)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("model.safetensors", lambda data: data[:-1]),
        ("model.safetensors", change_a_shape),
        ("tokenizer.json", lambda data: data[:-1]),
        ("config.json", lambda data: b"{}"),
    ],
)
def test_damaged_files_are_one_line(file: str, damage: Callable[[bytes], bytes], copied: Path) -> None:
    (copied / file).write_bytes(damage((copied / file).read_bytes()))
    with pytest.raises(
        UserError, match=rf"^model: .*{copied} cannot be loaded.*; its files are damaged"
    ) as caught:
        LanguageModel.from_pretrained(copied)
    assert "\n" not in str(caught.value)


def test_quantised_weights_that_cannot_be_read_are_named(copied: Path) -> None:
    set_config(copied, quantization_config={"quant_method": "awq", "bits": 4})
    with pytest.raises(UserError, match=r"its weights are quantised \(awq\): install what reads them"):
        LanguageModel.from_pretrained(copied)


def test_weights_of_other_formats_are_to_be_converted(copied: Path) -> None:
    (copied / "model.safetensors").rename(copied / "consolidated.pth")
    with pytest.raises(UserError, match="no weights that can be read safely; convert what it has"):
        LanguageModel.from_pretrained(copied)
    (copied / "consolidated.pth").unlink()
    with pytest.raises(UserError, match="no weights that can be read safely; copy or download"):
        LanguageModel.from_pretrained(copied)


def test_an_older_single_file_beside_newer_shards_is_refused(llama: Path) -> None:
    tiny_model("llama", len(tiny_tokenizer())).save_pretrained(llama.parent / "new", max_shard_size="100KB")
    for file in (llama.parent / "new").glob("*safetensors*"):
        shutil.copy(file, llama)
    with pytest.raises(
        UserError, match=r"has two sets of weights \(model-00001-of-\d+.safetensors and model.safet"
    ):
        LanguageModel.from_pretrained(llama)


def test_shards_of_two_saves_are_refused(llama: Path) -> None:
    model = tiny_model("llama", len(tiny_tokenizer()))
    (llama / "model.safetensors").unlink()
    for number, size in enumerate(("50KB", "100KB")):
        model.save_pretrained(llama.parent / str(number), max_shard_size=size)
        for file in (llama.parent / str(number)).glob("*safetensors*"):
            shutil.copy(file, llama)
    with pytest.raises(UserError, match="has two sets of weights"):
        LanguageModel.from_pretrained(llama)


@pytest.mark.parametrize("zipped", [True, False])
def test_weights_that_differ_between_formats_are_refused(zipped: bool, copied: Path) -> None:
    weights = {name: weight + 0.1 for name, weight in load_file(copied / "model.safetensors").items()}
    torch.save(weights, copied / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match="two sets of weights, which differ in .*; remove its files"):
        LanguageModel.from_pretrained(copied)


def but_the_first_row(weight: torch.Tensor) -> torch.Tensor:
    changed = weight + 0.1
    changed[0] = weight[0]
    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: weight * 1.003, lambda weight: (weight * 1.003).half(), but_the_first_row,
        lambda weight: (weight * 1.008).bfloat16(),
    ],
    ids=["finetuned", "finetuned_in_half", "but_the_first_row", "finetuned_in_bfloat16"],
)  # fmt: skip
def test_weights_that_differ_a_little_are_refused(
    change: Callable[[torch.Tensor], torch.Tensor], copied: Path
) -> None:
    weights = {name: change(weight) for name, weight in load_file(copied / "model.safetensors").items()}
    torch.save(weights, copied / "pytorch_model.bin")
    with pytest.raises(UserError, match="two sets of weights, which differ in .*; remove its files"):
        LanguageModel.from_pretrained(copied)


@pytest.mark.parametrize(
    "rename", [lambda name: f"module.{name}", lambda name: name.removeprefix("transformer.")]
)
def test_weights_of_prefixed_names_are_compared(rename: Callable[[str], str], copied: Path) -> None:
    weights = {rename(name): weight for name, weight in load_file(copied / "model.safetensors").items()}
    torch.save(weights, copied / "pytorch_model.bin")
    LanguageModel.from_pretrained(copied)
    torch.save({name: weight * 1.003 for name, weight in weights.items()}, copied / "pytorch_model.bin")
    with pytest.raises(UserError, match="two sets of weights, which differ in"):
        LanguageModel.from_pretrained(copied)


def test_a_single_file_beside_the_files_of_an_index_is_refused(copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    save_file(weights, copied / "weights-1.safetensors", {"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "weights-1.safetensors")}
    (copied / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(
        UserError, match=r"two sets of weights \(model.safetensors and weights-1.safetensors\)"
    ):
        LanguageModel.from_pretrained(copied)


@pytest.mark.parametrize(
    "kinds",
    [("float32", "float16"), ("float32", "bfloat16"), ("bfloat16", "float32"), ("float16", "bfloat16")],
)
def test_the_same_weights_in_two_formats_are_read(kinds: tuple[str, str], copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    stored, other = (
        {name: weight.to(getattr(torch, kind)) for name, weight in weights.items()} for kind in kinds
    )
    save_file(stored, copied / "model.safetensors", {"format": "pt"})
    torch.save(other, copied / "pytorch_model.bin")
    LanguageModel.from_pretrained(copied)


def test_what_is_compared_with_nothing_is_read_once(copied: Path, monkeypatch: Patch) -> None:
    weights = load_file(copied / "model.safetensors")
    (copied / "model.safetensors").unlink()
    torch.save(weights, copied / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    read = Mock(wraps=torch.load)
    monkeypatch.setattr(torch, "load", read)
    LanguageModel.from_pretrained(copied)
    assert read.call_count == 1


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_git_lfs_pointer_is_to_be_pulled(file: str, copied: Path) -> None:
    (copied / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 269060552\n")
    with pytest.raises(UserError, match=f"^model: {file} in .* is a Git LFS pointer.*run `git lfs pull`"):
        LanguageModel.from_pretrained(copied)


def test_a_pointer_in_a_format_that_is_not_loaded_is_ignored(copied: Path) -> None:
    (copied / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    LanguageModel.from_pretrained(copied)


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config.json", {"model_type": "shiny", "auto_map": {"AutoConfig": "own.Own"}}),
        ("config.json", {"architectures": ["Shiny"], "auto_map": {"AutoModelForCausalLM": "own.Own"}}),
    ],
)  # fmt: skip
def test_a_model_with_code_of_its_own_is_refused(file: str, values: dict[str, Any], copied: Path) -> None:
    (copied / file).write_text(json.dumps(json.loads((copied / file).read_text()) | values))
    (copied / "own.py").write_text(f"open({str(copied / 'ran')!r}, 'w')\n")
    with pytest.raises(
        UserError, match="cannot be loaded: it needs code of its own, which is never run; name"
    ):
        LanguageModel.from_pretrained(copied)
    assert not (copied / "ran").exists()


def test_code_beside_a_built_in_architecture_is_not_needed(copied: Path) -> None:
    set_config(copied, auto_map={"AutoModelForCausalLM": "own.GPT2LMHeadModel"})
    LanguageModel.from_pretrained(copied)


def test_an_unknown_model_type_may_be_newer(copied: Path) -> None:
    set_config(copied, model_type="llama9")
    with pytest.raises(
        UserError, match="its type llama9 is unknown to Transformers [0-9.]+; it may be newer"
    ):
        LanguageModel.from_pretrained(copied)


def test_gguf_is_to_be_converted(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    for path in (tmp_path, tmp_path / "model.gguf"):
        with pytest.raises(UserError, match="is a GGUF file; convert it"):
            LanguageModel.from_pretrained(path)


def test_gguf_beside_a_configuration_is_to_be_converted(copied: Path) -> None:
    (copied / "model.safetensors").rename(copied / "model.gguf")
    with pytest.raises(UserError, match="is a GGUF file; convert it"):
        LanguageModel.from_pretrained(copied)


def test_an_adapter_is_to_be_merged(copied: Path) -> None:
    (copied / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="is an adapter, not a whole model; merge it"):
        LanguageModel.from_pretrained(copied)


def test_a_model_without_a_tokenizer_needs_one(copied: Path) -> None:
    for file in copied.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(UserError, match="has no tokenizer; copy tokenizer.json"):
        LanguageModel.from_pretrained(copied)


def test_a_path_that_is_not_a_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a model folder"):
        LanguageModel.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        LanguageModel.from_pretrained(tmp_path / "absent")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_there_is_one_line(tiny_folder: Path) -> None:
    with pytest.raises(
        UserError, match="^lm.device=cuda:1 cannot be used: PyTorch finds no CUDA device here"
    ):
        LanguageModel.from_pretrained(tiny_folder, device="cuda:1")


def test_bfloat16_is_chosen_where_it_is_native() -> None:
    native = devices.native_bfloat16("cpu")
    assert devices.choose_dtype("auto", "cpu") == (torch.bfloat16 if native else torch.float32)
    assert devices.choose_dtype("bfloat16", "cpu") == torch.bfloat16


class Hostile:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("shards", [1, 2])
def test_weights_of_pytorch_are_read(shards: int, copied: Path) -> None:
    """As EleutherAI/gpt-j-6b has them."""
    expected = LanguageModel.from_pretrained(copied, "float32", "cpu").log_likelihoods([("red", " is for")])
    weights = load_file(copied / "model.safetensors")
    (copied / "model.safetensors").unlink()
    parts = [dict(list(weights.items())[n::shards]) for n in range(shards)]
    files = [
        f"pytorch_model-{n}-of-{shards}.bin" if shards > 1 else "pytorch_model.bin" for n in range(shards)
    ]
    for file, part in zip(files, parts, strict=True):
        torch.save(part, copied / file)
    if shards > 1:
        places = {name: file for file, part in zip(files, parts, strict=True) for name in part}
        index = {"metadata": {}, "weight_map": places}
        (copied / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    model = LanguageModel.from_pretrained(copied, "float32", "cpu")
    assert model.log_likelihoods([("red", " is for")]) == expected


def test_no_code_of_pickled_weights_is_run(copied: Path, tmp_path: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    (copied / "model.safetensors").unlink()
    torch.save({**weights, "ran": Hostile(tmp_path / "ran")}, copied / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded"):
        LanguageModel.from_pretrained(copied)
    assert not (tmp_path / "ran").exists()


def test_no_code_of_a_tokenizer_is_run(copied: Path, tmp_path: Path) -> None:
    config = json.loads((copied / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    (copied / "tokenizer_config.json").write_text(json.dumps(config))
    (copied / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with contextlib.suppress(UserError):
        loading.load_tokenizer(str(copied))
    assert not (tmp_path / "ran").exists()


def test_an_encoder_decoder_is_refused_before_its_weights_load(tmp_path: Path) -> None:
    tiny_t5(100).config.save_pretrained(tmp_path)
    t5_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"is an encoder-decoder model \(t5\); name a causal one"):
        LanguageModel.from_pretrained(tmp_path)


def test_a_tokenizer_without_a_start_token_is_refused_early(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    tokenizer = json.loads((copied / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = [pair for pair in tokenizer["model"]["merges"] if pair[-1] != "["]
    (copied / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UserError, match=r"no single token for ' \[', .*name a model whose tokenizer has one"):
        LanguageModel.from_pretrained(copied)


def changed(**parts: Any) -> PreTrainedTokenizerFast:
    """The tiny tokenizer with other components."""
    tokenizer: Tokenizer = tiny_tokenizer().backend_tokenizer
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def test_a_tokenizer_that_changes_calls_is_refused() -> None:
    for change in (
        {"normalizer": normalizers.Lowercase()},
        {"normalizer": normalizers.Replace('"', "'")},
        {"decoder": decoders.WordPiece()},
    ):
        tokenizer = changed(**change)
        with pytest.raises(UserError, match=r"tokenizer of x changes the text of a call \(.* becomes "):
            LanguageModel(tiny_model("gpt2", len(tokenizer)), tokenizer, "x")


@pytest.mark.parametrize(
    ("special", "name"), [("weather", "weather"), ("weather", "weather_now"), ("QA", "QA")]
)
def test_a_tools_name_with_a_special_token_is_refused(special: str, name: str) -> None:
    tokenizer = tiny_tokenizer()
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    words = [f" [{name}(x) -> y]"] * 9
    trainer = trainers.BpeTrainer(
        vocab_size=800, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator([*words, "an [ opening"] * 9, trainer)
    backend.add_special_tokens([AddedToken(special, normalized=False, special=True)])
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    model = LanguageModel(tiny_model("gpt2", len(fast)), fast, "m")
    with pytest.raises(
        UserError,
        match=f"the name {name} cannot be used, .* special token '{re.escape(special)}'.*another name",
    ):
        model.check_tool_names(["Calendar", name])


def test_a_tokenizer_that_adds_a_blank_decodes_what_it_encodes() -> None:
    """`ByteLevel` does by default."""
    tokenizer = changed(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True))
    model = LanguageModel(tiny_model("gpt2", len(tokenizer)), tokenizer)
    for text in (" [Calculator(18 + 12 * 3) -> 54]", "Scranton", "54]", " 12."):
        assert model.decode(model.encode_continuation(text)) == text
    assert model.decode(model.encode_after_start("QA(")) == "QA("


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model("gpt2", len(tokenizer))
    LanguageModel(model, tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})  # no text has it
    LanguageModel(model, tokenizer)
    tokenizer.add_tokens(["Scranton"])
    with pytest.raises(UserError, match="has token ids up to 421, but the model has only 420"):
        LanguageModel(model, tokenizer)


@pytest.mark.parametrize(
    ("config", "length"),
    [
        (AutoConfig.for_model("llama", max_position_embeddings=128), 128),
        (AutoConfig.for_model("gpt2", n_positions=64), 64),
        (MptConfig(max_seq_len=96), 96),
        (MultimodalGemma3(text_config={"max_position_embeddings": 32}), 32),
        (AutoConfig.for_model("doge", max_position_embeddings=64, keep_window_size=16), 16),
        (AutoConfig.for_model("mamba"), None),
    ],
)
def test_the_context_is_read_from_the_configuration(config: Any, length: int | None) -> None:
    assert loading.context_length(config) == length


def test_a_revision_is_part_of_a_hub_name(tmp_path: Path, monkeypatch: Patch) -> None:
    assert loading.locate("EleutherAI/gpt-j-6b@float16") == ("EleutherAI/gpt-j-6b", "float16")
    assert loading.locate("gpt2") == ("gpt2", "main")
    (tmp_path / "own@home").mkdir()
    (tmp_path / "own@home" / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    assert loading.locate("own@home") == ("own@home", "main"), "a folder"


def test_a_hub_out_of_reach_is_asked_once(monkeypatch: Patch) -> None:
    """Its own client asks six times, in half a minute."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = []

        def answer() -> None:
            with contextlib.suppress(OSError):  # the socket is closed at the end
                while True:
                    connection, _ = server.accept()
                    asked.append(connection.recv(100))
                    connection.close()

        threading.Thread(target=answer, daemon=True).start()
        place = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", place)
        template = place + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        with pytest.raises(
            UserError, match=f"smolm2 cannot be .*{place} is out of reach.*did you mean smollm2"
        ):
            loading.load_config("smolm2")
        assert len(asked) == 1


def test_a_lazy_model_that_cannot_be_loaded_says_so_at_every_use(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    (folder / "model.safetensors").unlink()
    model = LazyLanguageModel(place(str(folder), "float32", "cpu"), batch_tokens=7)
    for _ in range(2):
        with pytest.raises(UserError, match="has no weights"):
            model.encode("a")
    shutil.copy(tiny_folder / "model.safetensors", folder)
    assert model.encode("a") and model.batch_tokens == 7
