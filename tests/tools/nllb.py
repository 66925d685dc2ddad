"""A tiny model of NLLB-200's architecture that has learnt a few words. No downloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

DICTIONARY = {
    ("spa_Latn", "pan"): "bread",
    ("pol_Latn", "pan"): "mister",
    ("deu_Latn", "guten Morgen"): "good morning",
    ("spa_Latn", "buenas noches, amigo"): "good night, friend",
    ("fra_Latn", "la tortue"): "the turtle",
    ("zho_Hans", "喝茶"): "to drink tea",
    ("swe_Latn", "gift"): "married",
    ("deu_Latn", "Gift im Wasser"): "poison in the water",
}
"""(language, text) -> English. Of one text in two languages only the language's code tells which is meant."""


def tiny_tokenizer() -> Any:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    texts = [*(text for _, text in DICTIONARY), *DICTIONARY.values()]
    trainer = trainers.BpeTrainer(vocab_size=150, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    learnt = json.loads(tokenizer.to_str())["model"]
    return NllbTokenizer(vocab=learnt["vocab"], merges=[tuple(pair) for pair in learnt["merges"]])


def tiny_model(vocabulary: int) -> Any:
    torch.manual_seed(0)
    config = M2M100Config(
        vocab_size=vocabulary, max_position_embeddings=128, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4, decoder_attention_heads=4,
        dropout=0.0, attention_dropout=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0,
        bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
    )  # fmt: skip
    return M2M100ForConditionalGeneration(config).eval()


def learn(model: Any, tokenizer: Any, steps: int = 150) -> None:
    """Teaches the dictionary: encoder `<language> text </s>`, decoder `</s> eng_Latn English </s>`."""
    from toolformer.tools.nllb import encode
    from toolformer.tools.nllb_languages import ENGLISH

    def padded(rows: list[list[int]], filling: int) -> torch.Tensor:
        longest = max(map(len, rows))
        return torch.tensor([row + [filling] * (longest - len(row)) for row in rows])

    target = tokenizer.convert_tokens_to_ids(ENGLISH)
    sources = [encode(tokenizer, text, code) for code, text in DICTIONARY]
    written = [
        [target, *tokenizer(text, add_special_tokens=False).input_ids, 2] for text in DICTIONARY.values()
    ]
    ids, labels = padded(sources, 1), padded(written, -100)
    heads = padded([[2, *row[:-1]] for row in written], 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(
            input_ids=ids, attention_mask=(ids != 1).long(), decoder_input_ids=heads, labels=labels
        ).loss.backward()
        optimizer.step()
    model.eval()


def tiny_folder(folder: Path) -> Path:
    """A model that has learnt the dictionary, saved as NLLB's are."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(len(tokenizer) + 2)  # NLLB's vocabulary is larger than its tokenizer's
    learn(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
