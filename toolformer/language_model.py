"""A causal language model as the method needs it: start probabilities, branching caches, losses, greedy text.

Hides what backends do differently (GPT-2, GPT-J, Llama, ...): a forward pass that branches or is padded on the left gets an
explicit 4-D attention mask and explicit position ids. Knows nothing of calls but the token that starts one, and nothing of tools.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.cache_utils import Cache

from toolformer import key_values, products
from toolformer.batching import (
    TOKENS_PER_BATCH,
    Branches,
    by_length,
    causal,
    common_head,
    pad_left,
    pad_right,
)
from toolformer.calls import START
from toolformer.loading import choose_device, choose_dtype, load_causal, single_token, tokens_of

log = logging.getLogger(__name__)

FORCE_GQA = "TRANSFORMERS_SDPA_FORCE_GQA"
PREFIXES_KEPT = 8
"""Caches of few-shot prompts that are kept: one for each tool, and a few of the tools' own."""


@dataclass(frozen=True)
class Encoding:
    """A text's tokens and where a call may stand between them."""

    ids: list[int]
    """x_1..x_n, without tokens that the tokenizer would put around them."""
    positions: list[int | None]
    """Character position before each token, or None where a token begins inside a character. Length n."""


@dataclass(frozen=True)
class Prefix:
    """The key-value cache of tokens that many contexts share."""

    ids: list[int]
    cache: Cache


@dataclass(frozen=True)
class TokenScores:
    """Of the last tokens of a sequence: log-probability in nats, and whether each was the likeliest. Shape [keep]."""

    log_probs: torch.Tensor
    greedy: torch.Tensor


class LanguageModel:
    """A causal LM `M` with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, name: str = "model") -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.own_prefix: list[int] = _own_prefix(tokenizer)
        """What the tokenizer itself puts before a text (a BOS), and so every sequence begins with."""
        if self.device.type == "cpu":
            # Keys are then not copied once for every query head that shares them: a third off a decoding step.
            os.environ.setdefault(FORCE_GQA, "1")
            products.quicken(self.model)
        self.end_ids = _end_ids(model, tokenizer)
        """The tokens that end a text."""
        self.batch_tokens = TOKENS_PER_BATCH
        """Tokens of a batch in annotation at most; a GPU is filled by more."""
        self._anchor = self.encode("a")
        self.start_id = single_token(tokenizer, START, name)
        self.context_length = _context_length(model.config)
        self._prefixes: dict[tuple[int, ...], Prefix] = {}

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, dtype: str = "auto", device: str = "auto"
    ) -> LanguageModel:
        """Loads an embedded model, a folder or a hub model.

        Raises:
            UserError: it is no causal language model, or cannot be reached.
        """
        name = str(name_or_path)
        place = choose_device(device)
        model, tokenizer = load_causal(name, choose_dtype(dtype, place))
        model = model.to(place)
        return cls(model, tokenizer, name)

    # ------------------------------------------------------------------ tokens

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, nothing added; what reads like a special token is plain text."""
        ids: list[int] = tokens_of(self.tokenizer, text).input_ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids as it stands behind other text, special tokens left out."""
        # Behind a token of its own, since some tokenizers drop the blank before a text's first word.
        text: str = self.tokenizer.decode(
            [*self._anchor, *ids], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text[1:]

    def encode_text(self, text: str) -> Encoding:
        """x_1..x_n of a document, with the character position before each token."""
        encoded = tokens_of(self.tokenizer, text, offsets=True)
        positions: list[int | None] = []
        previous = 0
        for start, end in encoded.offset_mapping:
            # Some tokenizers leave the blank before a word out of the offsets: the call goes before it.
            inside = start < previous or text[previous:start].strip() != ""
            positions.append(None if inside else previous)
            previous = max(previous, end)
        return Encoding(list(encoded.input_ids), positions)

    def encode_behind(self, text: str) -> list[int]:
        """Token ids of `text` as it stands behind other text: some tokenizers put a blank before a text."""
        return self.encode("a" + text)[len(self._anchor) :]

    def encode_after_start(self, text: str) -> list[int]:
        """Token ids of `text` directly behind the start token."""
        return self.encode("a" + START + text)[len(self.encode("a" + START)) :]

    def document_start(self) -> list[int]:
        """The context of a text's first token when nothing stands before it."""
        return self.own_prefix or [self._first_token()]

    def _first_token(self) -> int:
        known = [self.tokenizer.bos_token_id, self.tokenizer.eos_token_id, self.start_id]
        return next(token for token in known if token is not None)

    # ---------------------------------------------------------- forward passes

    @torch.inference_mode()
    def forward(
        self,
        ids: torch.Tensor,
        visible: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache | None = None,
        keep: int | torch.Tensor = 0,
    ) -> torch.Tensor:
        """Logits of `ids` [batch, length]: of the last `keep` tokens, or all, as [batch, keep, vocabulary].

        `keep` may be a mask [batch, length] of the tokens that are wanted, which then come as [wanted, vocabulary].
        `visible` [batch, length, cached + length] says which keys each token sees; `cache` grows in place.
        """
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(~visible.to(self.device), torch.finfo(self.dtype).min)
        output = self.model(
            input_ids=ids.to(self.device),
            attention_mask=mask[:, None],
            position_ids=positions.to(self.device),
            past_key_values=cache,
            use_cache=cache is not None,
            logits_to_keep=keep.to(self.device) if isinstance(keep, torch.Tensor) else keep,
        )
        logits: torch.Tensor = output.logits
        return logits

    @torch.inference_mode()
    def _read(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """Logits [wanted, vocabulary] of the tokens that `keep` [batch, length] masks; padding stands on the right.

        Without a mask of its own: attention is told that it is causal, and computes half of what it would beneath one.
        """
        ids = ids.to(self.device)
        output = self.model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),  # nothing is hidden, and nothing warned of
            use_cache=False,
            logits_to_keep=keep.to(self.device),
        )
        logits: torch.Tensor = output.logits
        return logits

    def prefill(
        self,
        contexts: Sequence[Sequence[int]],
        prefix: Prefix | None = None,
        keep: Sequence[int] | None = None,
    ) -> tuple[torch.Tensor, Branches]:
        """Reads contexts side by side, padded on the left.

        Returns the logits of the last token of each [batch, vocabulary], or of the last `keep[n]` tokens of context n,
        one context behind the other [sum of keep, vocabulary], and a batch with one branch each.
        """
        shared = len(prefix.ids) if prefix else 0
        ids, valid = pad_left(contexts)
        rows, length = ids.shape
        cache = key_values.repeated(prefix.cache, rows) if prefix else key_values.new_cache()
        key_valid = torch.cat([torch.ones(rows, shared, dtype=torch.bool), valid], dim=1)
        positions = (valid.long().cumsum(1) - 1).clamp(min=0) + shared
        logits = self.forward(
            ids, causal(key_valid, length), positions, cache, _last(keep or [1] * rows, length)
        )
        lengths = valid.sum(1) + shared
        return logits, Branches(self, cache, key_valid[:, None], lengths[:, None])

    def prefix(self, ids: Sequence[int]) -> Prefix:
        """The cache of tokens that many contexts begin with; those asked for last are kept."""
        key = tuple(ids)
        found = self._prefixes.pop(key, None)
        if found is None:
            _, branches = self.prefill([ids])
            found = Prefix(list(ids), branches.cache)
        self._prefixes[key] = found
        while len(self._prefixes) > PREFIXES_KEPT:
            del self._prefixes[next(iter(self._prefixes))]
        return found

    def score(
        self,
        sequences: Sequence[Sequence[int]],
        wanted: Sequence[Sequence[int]],
        dtype: torch.dtype = torch.float32,
    ) -> list[TokenScores]:
        """log p of some tokens of each sequence given those before them, batched by length within the token budget.

        `wanted[n]` are the tokens' indices in sequence n, rising and from 1 on. Only their rows are projected to the
        vocabulary; log p is taken from their logits in `dtype`.
        """
        nothing = TokenScores(torch.empty(0), torch.empty(0, dtype=torch.bool))
        scores = [nothing] * len(sequences)
        lengths = [max(indices, default=0) for indices in wanted]
        for batch in by_length(lengths, [len(indices) for indices in wanted], self.batch_tokens):
            batch = [n for n in batch if len(wanted[n])]
            if not batch:
                continue
            ids = pad_right([sequences[n][: lengths[n]] for n in batch])
            rows = torch.zeros_like(ids, dtype=torch.bool)
            targets: list[int] = []
            for row, n in enumerate(batch):
                rows[row, torch.tensor(wanted[n]) - 1] = True
                targets += [sequences[n][index] for index in wanted[n]]
            logits = self._read(ids, rows).to(dtype)
            expected = torch.tensor(targets, device=self.device)
            greedy = (logits.argmax(-1) == expected).cpu()
            log_probs = (logits.gather(-1, expected[:, None])[:, 0] - logits.logsumexp(-1)).cpu()
            done = 0
            for n in batch:
                end = done + len(wanted[n])
                scores[n] = TokenScores(log_probs[done:end], greedy[done:end])
                done = end
        return scores

    # -------------------------------------------------------- text in, text out

    def generate(self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        """Greedy continuations, cut before the first stop text. Prompts that share a long head share its cache."""
        encoded = [self.own_prefix + self.encode(prompt) for prompt in prompts]
        longest = self.context_length - max_new_tokens
        encoded = [ids[-longest:] for ids in encoded]
        texts = [""] * len(prompts)
        shared = common_head(encoded) if len(encoded) > 1 else 0
        prefix = self.prefix(encoded[0][:shared]) if shared >= 16 else None
        rest = [ids[shared:] if prefix else ids for ids in encoded]
        for batch in by_length([len(ids) for ids in rest], [1] * len(rest)):
            for n, text in zip(
                batch, self._greedy([rest[n] for n in batch], prefix, max_new_tokens, stop), strict=True
            ):
                texts[n] = text
        return texts

    def _greedy(
        self, contexts: Sequence[Sequence[int]], prefix: Prefix | None, limit: int, stop: Sequence[str]
    ) -> Iterator[str]:
        logits, branches = self.prefill(contexts, prefix)
        written: list[list[int]] = [[] for _ in contexts]
        active = list(range(len(contexts)))
        following = logits.argmax(-1).tolist()
        for _ in range(limit):
            going: list[int] = []
            for row, n in enumerate(active):
                if following[row] in self.end_ids:
                    continue
                written[n].append(following[row])
                if not any(text in self.decode(written[n]) for text in stop):
                    going.append(row)
            if not going:
                break
            if len(going) < len(active):
                branches.keep_rows(going)
                active, following = [active[row] for row in going], [following[row] for row in going]
            following = branches.step(torch.tensor(following)[:, None])[:, 0].argmax(-1).tolist()
        for ids in written:
            text = self.decode(ids)
            yield text[: min([text.find(end) for end in stop if end in text], default=len(text))]

    def rolling_log_likelihoods(self, texts: Sequence[str]) -> list[tuple[float, int]]:
        """(log p of the whole text in nats, number of tokens) of each text.

        A text longer than the context is read in disjoint windows, each token scored once, as lm-eval does. What the
        tokenizer puts before a text (a BOS) counts as its first token there, and so here.
        """
        sequences: list[list[int]] = []
        keep: list[int] = []
        owner: list[int] = []
        counts: list[int] = []
        for n, text in enumerate(texts):
            ids = self.own_prefix + self.encode(text)
            counts.append(len(ids))
            stream = [self._first_token(), *ids]
            for start in range(0, len(ids), self.context_length):
                end = min(start + self.context_length, len(ids))
                # A window is filled up with tokens before it, as many as fit: context only.
                first = max(0, end - self.context_length) if start else 0
                sequences.append(stream[first : end + 1])
                keep.append(end - start)
                owner.append(n)
        sums = [0.0] * len(texts)
        wanted = [range(len(ids) - count, len(ids)) for ids, count in zip(sequences, keep, strict=True)]
        for n, score in zip(owner, self.score(sequences, wanted), strict=True):
            sums[n] += float(score.log_probs.double().sum())
        return list(zip(sums, counts, strict=True))

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """(log p(continuation | context) in nats, whether greedy decoding would write it) of each pair."""
        sequences: list[list[int]] = []
        wanted: list[range] = []
        for context, continuation in pairs:
            # Blanks at the end of the context belong to the continuation's first token.
            trailing = len(context) - len(context.rstrip())
            if trailing:
                context, continuation = context[:-trailing], context[-trailing:] + continuation
            head = self.own_prefix + self.encode(context) if context else self.document_start()
            whole = (
                self.own_prefix + self.encode(context + continuation)
                if context
                else head + self.encode(continuation)
            )
            tail = whole[len(head) :]
            whole = (head + tail)[-(self.context_length + 1) :]
            sequences.append(whole)
            wanted.append(range(max(1, len(whole) - len(tail)), len(whole)))
        scores = self.score(sequences, wanted)
        return [(float(score.log_probs.double().sum()), bool(score.greedy.all())) for score in scores]


def _last(keep: Sequence[int], length: int) -> torch.Tensor:
    """Mask [batch, length] of the last `keep[n]` tokens of each row."""
    return torch.arange(length)[None] >= length - torch.tensor(list(keep))[:, None]


def _own_prefix(tokenizer: Any) -> list[int]:
    """What the tokenizer puts before a text when asked to add special tokens (a BOS, for Llama and Gemma)."""
    plain = tokenizer("a", add_special_tokens=False).input_ids
    full = tokenizer("a", add_special_tokens=True).input_ids
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return list(full[:start])
    return []


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a text: the tokenizer's, and those that the model's generation settings name beside it."""
    settings = getattr(model, "generation_config", None)
    named = getattr(settings, "eos_token_id", None)
    several = named if isinstance(named, list | tuple) else [named]
    return frozenset(int(token) for token in [tokenizer.eos_token_id, *several] if token is not None)


def _context_length(config: Any) -> int:
    """Tokens the model can read at once; a sliding window counts, since the tree mask does not slide."""
    sizes = [
        getattr(config, name, None) for name in ("max_position_embeddings", "n_positions", "sliding_window")
    ]
    return min([size for size in sizes if isinstance(size, int) and size > 0], default=1024)
