"""Running a model: fast paths, batches and encoder-decoders give what plain calls of Transformers give; language identification.

Likelihoods of whole texts are held to lm-eval's own in `tests/benchmarks/test_parity.py`.
"""

import contextlib
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, load_file, save
from torch import nn
from transformers import T5ForConditionalGeneration
from transformers.integrations import sdpa_attention

from tests.conftest import tiny_model
from tests.t5 import t5_tokenizer, textbook, tiny_t5
from tests.textbook import logits, stock
from toolformer.errors import UserError
from toolformer.lm import fast_linear, text_generator
from toolformer.lm.batching import by_length, rows_per_batch
from toolformer.lm.language_id import UNDETERMINED, LanguageIdentifier
from toolformer.lm.language_model import LanguageModel
from toolformer.lm.loading import choose_dtype, load_tokenizer, native_bfloat16
from toolformer.lm.seq2seq import Seq2SeqModel, is_encoder_decoder
from toolformer.lm.slots import Slots
from toolformer.lm.text_generator import ModelGenerator
from toolformer.tools.base import TextGenerator

CONTEXTS = [[5, 9, 2, 14], [7, 3], [11, 4, 6, 8, 1, 2]]


def check(logits: torch.Tensor, language_model: LanguageModel, *sequences: list[int]) -> None:
    """Each row of logits is that of a fresh reading of its tokens."""
    for row, ids in zip(logits, sequences, strict=True):
        with torch.inference_mode():
            expected = language_model.model(torch.tensor([ids])).logits[0, -1]
        torch.testing.assert_close(row, expected, atol=1e-4, rtol=0)


def test_slots_continue_independently(language_model: LanguageModel) -> None:
    """From several batches, by one token or several, with tokens rolled back or not read, and rows that are replaced."""
    _, first = language_model.prefill(CONTEXTS[:2])
    _, second = language_model.prefill(CONTEXTS[2:])
    first.step(torch.tensor([[3], [4]]))
    slots = Slots(language_model)
    slots.put([1, 2], first, [1, 0])
    slots.put([0], second, [0])
    sequences = [CONTEXTS[2], [*CONTEXTS[1], 4], [*CONTEXTS[0], 3]]
    logits = slots.step([12, 13, 0], fed=[True, True, False])
    check(logits[:2], language_model, [*sequences[0], 12], [*sequences[1], 13])
    more = [[1, 2, 3], [6, 7]]
    check(slots.extend([2, 0], more), language_model, [*sequences[2], 1, 2, 3], [*sequences[0], 12, 6, 7])
    slots.forget(2, 2)
    slots.put([1], second, [0])
    ended = [[*sequences[0], 12, 6, 7, 9], [*CONTEXTS[2], 9], [*sequences[2], 1, 9]]
    check(slots.step([9, 9, 9], fed=[True] * 3), language_model, *ended)
    slots.keep([2, 1])
    check(slots.step([8, 8], fed=[True] * 2), language_model, [*ended[2], 8], [*ended[1], 8])


def test_branches_see_only_their_tokens(language_model: LanguageModel) -> None:
    """Several columns a row, of which some go on and branch again."""
    _, branches = language_model.prefill(CONTEXTS)
    branches.select(torch.zeros(3, 2, dtype=torch.long))
    branches.step(torch.tensor([[1, 2], [3, 4], [5, 6]]))
    branches.step(torch.tensor([[7, 8], [9, 10], [11, 12]]))
    branches.select(torch.tensor([[1, 1, 0], [0, 1, 0], [1, 0, 1]]))
    logits = branches.step(torch.tensor([[3, 4, 5], [6, 7, 8], [9, 1, 2]]))
    tails = [
        [[2, 8, 3], [2, 8, 4], [1, 7, 5]],
        [[3, 9, 6], [4, 10, 7], [3, 9, 8]],
        [[6, 12, 9], [5, 11, 1], [6, 12, 2]],
    ]
    for row, context, of_row in zip(logits, CONTEXTS, tails, strict=True):
        check(row, language_model, *([*context, *tail] for tail in of_row))


def test_log_likelihood_of_a_continuation(language_model: LanguageModel) -> None:
    born = "Joe Biden was born in"
    pairs = [(born, " Scranton, Pennsylvania."), (f"{born} ", "Scranton"), ("", "red")]
    scores = language_model.log_likelihoods(pairs)
    for (context, continuation), (total, greedy) in zip(pairs, scores, strict=True):
        head = language_model.encode(context.rstrip()) if context else language_model.start_ids()
        tail = language_model.encode(context + continuation)[len(head) if context else 0 :]
        log_probs = logits(language_model, head + tail).log_softmax(-1)[len(head) - 1 : -1]
        expected = log_probs.gather(1, torch.tensor(tail)[:, None]).sum()
        assert total == pytest.approx(float(expected), abs=1e-3)
        assert greedy == (log_probs.argmax(-1).tolist() == tail)


def test_without_calls_the_start_token_has_probability_0(language_model: LanguageModel) -> None:
    """Paper, footnote 5: against the logits of all tokens, the start token's set to minus infinity elsewhere."""
    text = "Joe Biden [the president] was born in Scranton."
    ids = language_model.encode(text)
    assert ids.count(language_model.start_id) == 1
    rows = logits(language_model, [*language_model.start_ids(), *ids])[:-1].clone()
    rows[torch.tensor(ids) != language_model.start_id, language_model.start_id] = -torch.inf
    expected = rows.log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).sum()
    ((total, count),) = language_model.rolling_log_likelihoods([text], calls=False)
    assert (total, count) == (pytest.approx(float(expected), abs=1e-3), len(ids))
    ((with_calls, _),) = language_model.rolling_log_likelihoods([text])
    assert with_calls < total - 1e-3


def test_greedy_texts_are_those_of_stock_generate(language_model: LanguageModel) -> None:
    prompts = ["The number in the next term is", "The number in the next term is 18 + 12", "red"]
    texts = language_model.generate(prompts, max_new_tokens=8)
    assert texts == [language_model.decode(stock(language_model, prompt, 8)) for prompt in prompts]
    stop = texts[2][3]
    assert language_model.generate(["red"], 8, stop=[stop]) == [texts[2][: texts[2].index(stop)]]


def test_positions_are_between_characters_and_before_blanks(tiny_gpt2: LanguageModel) -> None:
    text = "The 北京 is<|endoftext|>\n658,893 🏳️‍🌈 é<| x<|endoftext|>"
    encoding = tiny_gpt2.encode_text(text)
    for n, position in enumerate(encoding.positions):
        if position is not None:
            assert tiny_gpt2.tokenizer.decode(encoding.ids[:n]) == text[:position]
    assert encoding.positions[0] == 0 and None in encoding.positions
    assert text[encoding.positions[tiny_gpt2.encode("The").__len__()] or 0] == " "


def change_a_shape(data: bytes) -> bytes:
    weights = load(data)
    name = next(name for name in weights if name.endswith("wte.weight"))
    return save(weights | {name: weights[name][:, :-1].contiguous()}, {"format": "pt"})


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("model.safetensors", lambda data: data[:-1]),
        ("model.safetensors", change_a_shape),
        ("tokenizer.json", lambda data: data[:-1]),
        ("config.json", lambda data: b"{}"),
    ],
)
def test_damaged_files_are_one_line(
    file: str, damage: Callable[[bytes], bytes], tiny_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    (folder / file).write_bytes(damage((folder / file).read_bytes()))
    with pytest.raises(UserError, match=f"^model: .*{folder} cannot be loaded") as caught:
        LanguageModel.from_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_brings_no_code_of_its_own(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with contextlib.suppress(UserError):
        load_tokenizer(str(folder))
    assert not (tmp_path / "ran").exists()


def test_what_is_no_model_or_device_is_one_line(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a model folder"):
        LanguageModel.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        LanguageModel.from_pretrained(tmp_path / "absent")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="^lm.device is cuda:1, and PyTorch finds no CUDA device here"):
            LanguageModel.from_pretrained(tiny_folder, device="cuda:1")
    # bfloat16 only where it is native
    assert choose_dtype("auto", "cpu") == (torch.bfloat16 if native_bfloat16("cpu") else torch.float32)
    assert choose_dtype("bfloat16", "cpu") == torch.bfloat16


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 1500)), min_size=1, max_size=60),
    st.sampled_from([256, 2048, 16384]),
)
def test_batches_hold_every_sequence_once_within_the_budgets(
    sizes: list[tuple[int, int]], tokens: int
) -> None:
    lengths, rows = [length for length, _ in sizes], [count for _, count in sizes]
    batches = list(by_length(lengths, rows, tokens))
    assert sorted(n for batch in batches for n in batch) == list(range(len(sizes)))
    for batch in batches:
        if len(batch) > 1:
            assert len(batch) * max(lengths[n] for n in batch) <= tokens
            assert sum(rows[n] for n in batch) <= rows_per_batch(tokens)


def test_a_small_batch_linear_layer_is_the_stock_one() -> None:
    """By another order of the operands; gradients flow, and other number formats are left alone."""
    few = fast_linear.MAX_ROWS
    for shape in ((7,), (1, 7), (5, 1, 7), (4, 3, 7), (few, 7), (3, few, 7)):
        for bias in (True, False):
            layer, rows = nn.Linear(7, 11, bias=bias), torch.randn(shape)
            with torch.inference_mode():
                expected = layer(rows)
                fast_linear.use_fast_linear(layer)
                found = layer(rows)
            torch.testing.assert_close(found, expected)
            assert found.shape == expected.shape and found.is_contiguous()
    layer(torch.randn(3, 7)).sum().backward()
    assert layer.weight.grad is not None
    half = nn.Linear(7, 11).to(torch.bfloat16)
    fast_linear.use_fast_linear(half)
    assert type(half) is nn.Linear
    model, ids = tiny_model("llama", 50), torch.arange(20).view(4, 5)
    with torch.inference_mode():
        stock = model(input_ids=ids).logits
        fast_linear.use_fast_linear(model)
        quick = model(input_ids=ids).logits
    assert any(isinstance(module, fast_linear.SmallBatchLinear) for module in model.modules())
    torch.testing.assert_close(quick, stock, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("device", "shared"), [("cpu", True), ("meta", False)])
def test_only_a_cpu_reads_shared_keys_without_a_copy(
    tiny_gpt2: LanguageModel, device: str, shared: bool
) -> None:
    """On CUDA a mask then takes a slow kernel: a model on a CPU decides nothing for one there."""
    assert tiny_gpt2.device.type == "cpu"
    mask, keys = torch.zeros(1, 1, 3, 3, device=device), torch.zeros(1, 2, 3, 8, device=device)
    assert sdpa_attention.use_gqa_in_sdpa(mask, keys, keys) == shared


PROMPTS = ["Who discovered radium?", "a", "The population is 658,893 people. " * 6, "the compass shows north"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny T5 saved as a model folder."""
    path, tokenizer = tmp_path_factory.mktemp("models") / "tiny-t5", t5_tokenizer()
    tiny_t5(len(tokenizer)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_a_sequence_to_sequence_model_is_the_reference_in_any_batch(folder: Path) -> None:
    generate = ModelGenerator(str(folder), "float32", "cpu")
    assert isinstance(generate, TextGenerator)
    model = T5ForConditionalGeneration.from_pretrained(folder).eval()
    expected = [textbook(model, t5_tokenizer(), [prompt], 8) for prompt in PROMPTS]
    assert generate(PROMPTS, 8) == expected
    assert [generate([prompt], 8)[0] for prompt in PROMPTS] == expected
    assert len(set(expected)) == len(PROMPTS), "a model that heeds its prompt"
    assert generate([], 8) == []
    stop = expected[0][2:4]
    assert generate(PROMPTS[:1], 8, ("never", stop)) == [expected[0][: expected[0].find(stop)]]

    model = Seq2SeqModel(str(folder), "float32", "cpu")  # a long prompt loses its beginning
    tail = "x" + " north" * 600
    kept = model.tokenizer(tail, truncation=True, max_length=model.longest).input_ids
    assert len(kept) == model.longest == 512
    assert kept[-1] == 1 and kept[0] != model.tokenizer("x").input_ids[0]
    assert model.generate(["y" + tail[1:]], 4) == model.generate([tail], 4)


def test_the_kind_of_a_model_is_read_from_its_configuration(
    folder: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    """Only safetensors are loaded."""
    assert is_encoder_decoder(str(folder))
    assert not is_encoder_decoder(str(tiny_folder)) and not is_encoder_decoder("smollm2")
    text_generator.load.cache_clear()
    assert len(ModelGenerator(str(tiny_folder), "float32", "cpu")(["a", "b"], 3)) == 2
    assert text_generator.load.cache_info().currsize == 1
    with pytest.raises(UserError, match="no config.json"):
        is_encoder_decoder(str(tmp_path))
    shutil.copytree(folder, tmp_path / "pickled")
    torch.save(load_file(folder / "model.safetensors"), tmp_path / "pickled" / "pytorch_model.bin")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be loaded"):
        ModelGenerator(str(tmp_path / "pickled"))(["a"], 2)


SENTENCES = {
    "en": "The committee will meet again next Thursday to discuss the budget.",
    "fr": "Le chat dort tranquillement sur la table de la cuisine.",
    "de": "Der Zug nach Hamburg hat heute leider zwanzig Minuten Verspätung.",
    "vi": "Hà Nội là thủ đô của nước Cộng hòa xã hội chủ nghĩa Việt Nam.",
    "hi": "भारत की राजधानी नई दिल्ली है और यह एक बड़ा शहर है।",
    "zh": "北京大学是中国最著名的大学之一。",
}


@pytest.mark.real
def test_real_sentences_whatever_disturbs_fasttext() -> None:
    identifier = LanguageIdentifier()
    for language, text in SENTENCES.items():
        code, probability = identifier.identify(text)
        assert code == language and 0.7 < probability <= 1.0
    text = SENTENCES["fr"]
    assert identifier.identify(text.replace(" ", "\r\n\t ")) == identifier.identify(text)
    for head in ("\ud800 ", "\0", "Le\0", "</s> ", "Le </s> </s> "):  # some end a line for fastText
        code, probability = identifier.identify(head + text)
        assert (code, probability > 0.7) == ("fr", True)
    for without_letters in ("", "  \n", "123 456", "$ 4.50 -> ?"):
        assert identifier.identify(without_letters) == (UNDETERMINED, 0.0)
    for language, text in SENTENCES.items():
        assert identifier.identify(text.upper())[0] == language, "capitals"
    texts = [*SENTENCES.values(), "", "12 5", "\ud800 mundo", "caf\u00e9\nnoir"] * 40
    expected = [identifier.identify(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(identifier.identify, texts * 16)) == expected * 16
