"""A causal language model as the method needs it: start probabilities, branching caches, losses, greedy text.

A forward pass that branches or is padded on the left gets an explicit 4-D attention mask and explicit position ids, which
most backends (GPT-2, GPT-J, Llama, ...) heed; a model that does not is found by a probe and read otherwise (`exact`).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.cache_utils import Cache

from toolformer.calls import START
from toolformer.lm import batching, exact, fast_linear, kv_cache, loading
from toolformer.lm.batching import TOKENS_PER_BATCH, Branches, Prefix
from toolformer.lm.text_generator import cut_at

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
        self.own_prefix: list[int] = loading.own_prefix(tokenizer)
        """What the tokenizer itself puts before a text (a BOS), and so every sequence begins with."""
        if self.device.type == "cpu":
            fast_linear.quicken(self.model)
        self.end_ids = _end_ids(model, tokenizer)
        """The tokens that end a text."""
        self.batch_tokens = TOKENS_PER_BATCH
        """Tokens of a batch in annotation at most; a GPU is filled by more."""
        self.reads_special_tokens = False
        """Whether special tokens in a text are such, as in one that a chat template rendered, and no plain text."""
        self._anchor = self.encode("a")
        self.start_id = loading.single_token(tokenizer, START, name)
        config = model.config.get_text_config()
        self.context_length: int = loading.context_length(config) or 1024
        self._layer_types = set(getattr(config, "layer_types", None) or ["sliding_attention"])
        self._prefixes: dict[tuple[int, ...], Prefix] = {}
        self.fast_length = loading.fast_length(config)
        """Cached keys up to which a batch is read with a cache and a mask; beyond, it takes the slow path (`exact`)."""
        exact.probe(self)

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, dtype: str = "auto", device: str = "auto"
    ) -> LanguageModel:
        """Loads an embedded model, a folder or a hub model. UserError if it is no causal one, or out of reach."""
        name = str(name_or_path)
        device = loading.choose_device(device)
        model, tokenizer = loading.load_causal(name, loading.choose_dtype(dtype, device))
        return cls(model.to(device), tokenizer, name)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, nothing added; what reads like a special token is plain text, but for a rendered chat."""
        if not self.reads_special_tokens:
            return loading.encode(self.tokenizer, text)
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        own = len(self.own_prefix)
        return ids[own:] if ids[:own] == self.own_prefix else ids  # templates write the BOS themselves

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids as it stands behind other text, special tokens left out."""
        # Behind a token of its own, since some tokenizers drop the blank before a text's first word.
        text: str = self.tokenizer.decode(
            [*self._anchor, *ids], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text[1:]

    def encode_text(self, text: str) -> Encoding:
        """x_1..x_n of a document, with the character position before each token."""
        encoded = loading.tokens_of(self.tokenizer, text, offsets=True)
        return Encoding(list(encoded.input_ids), loading.token_positions(text, encoded.offset_mapping))

    def encode_behind(self, text: str) -> list[int]:
        """Token ids of `text` as it stands behind other text."""
        return loading.encode_behind(self.tokenizer, text)

    def encode_after_start(self, text: str) -> list[int]:
        """Token ids of `text` directly behind the start token."""
        return self.encode("a" + START + text)[len(self.encode("a" + START)) :]

    @functools.cached_property
    def opening_ids(self) -> list[int]:
        """The tokens that begin with a parenthesis."""
        tokens = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        return [n for n, token in enumerate(tokens) if token is not None and token.startswith("(")]

    def document_start(self) -> list[int]:
        """The context of a text's first token when nothing stands before it."""
        return self.own_prefix or [self._first_token()]

    def _first_token(self) -> int:
        known = [self.tokenizer.bos_token_id, self.tokenizer.eos_token_id, self.start_id]
        return next(token for token in known if token is not None)

    @torch.inference_mode()
    def forward(
        self,
        ids: torch.Tensor,
        visible: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache,
        keep: int | torch.Tensor = 0,
    ) -> torch.Tensor:
        """Logits of `ids` [batch, length]: of the last `keep` tokens, or all, as [batch, keep, vocabulary].

        `keep` may be a mask [batch, length] of the tokens that are wanted, which then come as [wanted, vocabulary].
        `visible` [batch, length, cached + length] says which keys each token sees; `cache` grows in place.
        """
        if exact.is_needed(cache, visible.shape[-1], self.fast_length):
            return exact.forward(self, ids, visible, cache, keep)
        logits: torch.Tensor = self.model(
            input_ids=ids.to(self.device),
            attention_mask=self._attention_mask(visible.to(self.device)),
            position_ids=positions.to(self.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep.to(self.device) if isinstance(keep, torch.Tensor) else keep,
        ).logits
        if self.fast_length < math.inf:
            exact.remember(cache, ids.to(self.device))
        return logits

    def _attention_mask(self, visible: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        """What is added to the scores [batch, 1, length, keys], by the type of layer where a model has several."""

        def added(seen: torch.Tensor) -> torch.Tensor:
            mask = torch.zeros(seen.shape, dtype=self.dtype, device=self.device)
            return mask.masked_fill_(~seen, torch.finfo(self.dtype).min)[:, None]

        sliding = "sliding_attention" in self._layer_types
        window = getattr(self.model.config.get_text_config(), "sliding_window", None) if sliding else None
        if not window or visible.shape[-1] <= window:
            return added(visible)
        # The keys that a token sees stand in the order of its text, whatever stands between them.
        seen = visible.cumsum(-1, dtype=torch.int32)
        slid = added(visible & (seen > seen[..., -1:] - window))
        if self._layer_types == {"sliding_attention"}:
            return slid
        full = added(visible)
        return {kind: slid if kind == "sliding_attention" else full for kind in self._layer_types}

    def _logits_behind(
        self, sequences: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]], dtype: torch.dtype
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Batches of similar length: their sequences' numbers, and the logits [tokens, vocabulary] behind the wanted tokens."""
        lengths = [max(indices, default=-1) + 1 for indices in wanted]
        for batch in batching.by_length(lengths, [len(indices) for indices in wanted], self.batch_tokens):
            batch = [n for n in batch if len(wanted[n])]
            if slow := [n for n in batch if lengths[n] > self.fast_length]:
                read = [sequences[n][: lengths[n]] for n in slow]
                yield slow, torch.cat(exact.read(self, read, [wanted[n] for n in slow])).to(dtype)
            batch = [n for n in batch if lengths[n] <= self.fast_length]
            if not batch:
                continue
            ids = batching.padded([sequences[n][: lengths[n]] for n in batch], "right")
            keep = torch.zeros_like(ids, dtype=torch.bool)
            for row, n in enumerate(batch):
                keep[row, torch.tensor(wanted[n])] = True
            ids = ids.to(self.device)
            with torch.inference_mode():
                # Without a mask of its own: attention is told that it is causal, and computes half as much.
                output = self.model(
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),  # nothing is hidden, and nothing warned of
                    use_cache=False,
                    logits_to_keep=keep.to(self.device),
                )
            yield batch, output.logits.to(dtype)

    def prefill(
        self,
        contexts: Sequence[Sequence[int]],
        prefix: Prefix | None = None,
        keep: Sequence[int] | None = None,
    ) -> tuple[torch.Tensor, Branches]:
        """Reads contexts side by side, padded on the left; returns logits and a batch with one branch each.

        The logits are those of the last token of each [batch, vocabulary], or of the last `keep[n]` tokens of context
        n, one context behind the other [sum of keep, vocabulary].
        """
        shared = len(prefix.ids) if prefix else 0
        ids, valid = batching.pad_left(contexts)
        rows, length = ids.shape
        cache = kv_cache.repeated(prefix.cache, rows) if prefix else kv_cache.new_cache()
        key_valid = torch.cat([torch.ones(rows, shared, dtype=torch.bool), valid], dim=1)
        positions = (valid.long().cumsum(1) - 1).clamp(min=0) + shared
        logits = self.forward(
            ids,
            batching.causal(key_valid, length),
            positions,
            cache,
            batching.last_tokens(keep or [1] * rows, length),
        )
        lengths = valid.sum(1) + shared
        return logits, Branches(self, cache, key_valid[:, None], lengths[:, None])

    def prefix(self, ids: Sequence[int]) -> Prefix:
        """The cache of tokens that many contexts begin with; those asked for last are kept."""
        key = tuple(ids)
        prefix = self._prefixes.pop(key, None)
        if prefix is None:
            _, branches = self.prefill([ids])
            prefix = Prefix(list(ids), branches.cache)
        self._prefixes[key] = prefix
        while len(self._prefixes) > PREFIXES_KEPT:
            del self._prefixes[next(iter(self._prefixes))]
        return prefix

    def score(
        self,
        sequences: Sequence[Sequence[int]],
        wanted: Sequence[Sequence[int]],
        dtype: torch.dtype = torch.float32,
        calls: bool = True,
    ) -> list[TokenScores]:
        """log p of some tokens of each sequence given those before them, batched by length within the token budget.

        `wanted[n]` are the tokens' indices in sequence n, rising and from 1 on. Only their rows are projected to the
        vocabulary; log p is taken from their logits in `dtype`. Without `calls` the start token has probability 0
        (paper, footnote 5), except where the text itself has it, which would otherwise be impossible.
        """
        nothing = TokenScores(torch.empty(0), torch.empty(0, dtype=torch.bool))
        scores = [nothing] * len(sequences)
        before = [[index - 1 for index in indices] for indices in wanted]
        for batch, logits in self._logits_behind(sequences, before, dtype):
            counts = [len(wanted[n]) for n in batch]
            targets = [sequences[n][index] for n in batch for index in wanted[n]]
            expected = torch.tensor(targets, device=self.device)
            if not calls:
                with torch.inference_mode():
                    logits[expected != self.start_id, self.start_id] = -torch.inf
            greedy = (logits.argmax(-1) == expected).cpu().split(counts)
            log_probs = (logits.gather(-1, expected[:, None])[:, 0] - logits.logsumexp(-1)).cpu()
            for n, *score in zip(batch, log_probs.split(counts), greedy, strict=True):
                scores[n] = TokenScores(*score)
        return scores

    def start_log_probs(self, sequences: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """log p(<API> | sequence up to and including token j) of each token j of each sequence, [length]."""
        starts = [torch.empty(0)] * len(sequences)
        everywhere = [range(len(ids)) for ids in sequences]
        for batch, logits in self._logits_behind(sequences, everywhere, torch.float32):
            log_probs = (logits[:, self.start_id] - logits.logsumexp(-1)).cpu()
            for n, of_sequence in zip(
                batch, log_probs.split([len(sequences[n]) for n in batch]), strict=True
            ):
                starts[n] = of_sequence
        return starts

    def generate(self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        """Greedy continuations, cut before the first stop text. Prompts that share a long head share its cache."""
        encoded = [self.own_prefix + self.encode(prompt) for prompt in prompts]
        return [cut_at(self.decode(ids), stop) for ids in self.continued(encoded, max_new_tokens, stop)]

    def continued(
        self, encoded: Sequence[list[int]], max_new_tokens: int, stop: Sequence[str] = ()
    ) -> list[list[int]]:
        """Greedy continuations of tokens, ended behind the first stop text, as tokens without the one that ends a text."""
        longest = self.context_length - max_new_tokens
        encoded = [ids[-longest:] for ids in encoded]
        continuations: list[list[int]] = [[]] * len(encoded)
        # What all begin with is read once; each keeps a token of its own.
        head = os.path.commonprefix([ids[:-1] for ids in encoded]) if len(encoded) > 1 else []
        prefix = self.prefix(head) if len(head) >= 16 else None
        rest = [ids[len(head) :] if prefix else ids for ids in encoded]
        for batch in batching.by_length([len(ids) for ids in rest], [1] * len(rest)):
            written = self._greedy([rest[n] for n in batch], prefix, max_new_tokens, stop)
            for n, ids in zip(batch, written, strict=True):
                continuations[n] = ids
        return continuations

    def _greedy(
        self, contexts: Sequence[Sequence[int]], prefix: Prefix | None, limit: int, stop: Sequence[str]
    ) -> list[list[int]]:
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
        return written

    def rolling_log_likelihoods(self, texts: Sequence[str], calls: bool = True) -> list[tuple[float, int]]:
        """(log p of the whole text in nats, number of tokens) of each text; `calls` as in `score`.

        A text longer than the context is read in disjoint windows, each token scored once, as lm-eval does. What the
        tokenizer puts before a text (a BOS) counts as its first token there, and so here.
        """
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        encoded = [self.own_prefix + self.encode(text) for text in texts]
        windows: list[list[int]] = []
        tails: list[int] = []
        owner: list[int] = []
        for n, ids in enumerate(encoded):
            rolling = get_rolling_token_windows(ids, self._first_token(), self.context_length, 1)
            for context, continuation in map(make_disjoint_window, rolling):
                windows.append(context + continuation)
                tails.append(len(continuation))
                owner.append(n)
        sums = [0.0] * len(texts)
        for n, (total, _) in zip(owner, self._score_tails(windows, tails, calls), strict=True):
            sums[n] += total
        return [(total, len(ids)) for total, ids in zip(sums, encoded, strict=True)]

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """(log p(continuation | context) in nats, whether greedy decoding would write it) of each pair."""
        sequences: list[list[int]] = []
        tails: list[int] = []
        for context, continuation in pairs:
            # Blanks at the end of the context belong to the continuation's first token.
            trailing = len(context) - len(context.rstrip())
            if trailing:
                context, continuation = context[:-trailing], context[-trailing:] + continuation
            head = self.own_prefix + self.encode(context) if context else self.document_start()
            start = self.own_prefix if context else head
            tail = (start + self.encode(context + continuation))[len(head) :]
            whole = (head + tail)[-(self.context_length + 1) :]
            sequences.append(whole)
            tails.append(min(len(tail), len(whole) - 1))
        return self._score_tails(sequences, tails)

    def _score_tails(
        self, sequences: Sequence[Sequence[int]], tails: Sequence[int], calls: bool = True
    ) -> list[tuple[float, bool]]:
        """(log p in nats, whether greedy decoding would write them) of the last `tails[n]` tokens of each sequence."""
        wanted = [range(len(ids) - tail, len(ids)) for ids, tail in zip(sequences, tails, strict=True)]
        scores = self.score(sequences, wanted, calls=calls)
        return [(float(score.log_probs.double().sum()), bool(score.greedy.all())) for score in scores]


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a text: the tokenizer's, and those that the model's generation settings name beside it."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    several = named if isinstance(named, list | tuple) else [named]
    return frozenset(int(token) for token in [tokenizer.eos_token_id, *several] if token is not None)
