"""A causal language model as the method needs it: start probabilities, branching caches, losses, greedy text.

A forward pass that branches or is padded on the left gets an explicit 4-D attention mask and explicit position ids. Most
models (GPT-2, GPT-J, Llama, ...) respect them; a probe detects those that do not, which take the slow path (`exact`).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache

from toolformer.calls import ARROW, END, START, ApiCall, linearise
from toolformer.errors import UserError
from toolformer.lm import batching, exact, fast_linear, kv_cache, loading
from toolformer.lm.batching import TOKENS_PER_BATCH
from toolformer.lm.branches import Branches, Prefix
from toolformer.lm.memory import Memory, free_bytes
from toolformer.lm.static_steps import StaticSteps
from toolformer.lm.stop import cut_at

PREFIXES_KEPT = 8
"""Caches of few-shot prompts that are kept: one per tool, and a few for the tools' own prompts."""


@dataclass(frozen=True)
class Encoding:
    """A text's tokens, and where a call may go between them."""

    ids: list[int]
    """x_1..x_n, without tokens that the tokenizer would put around them."""
    positions: list[int | None]
    """Character position before each token, or None where a token begins inside a character. Length n."""


@dataclass(frozen=True)
class TokenScores:
    """Log-probability in nats of some tokens of a sequence, and whether each was the likeliest. Shape [tokens]."""

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
        self.bos_ids: list[int] = loading.bos_ids(tokenizer)
        """Tokens that the tokenizer puts before a text (a BOS); every sequence begins with them."""
        if self.device.type == "cpu":
            fast_linear.use_fast_linear(self.model)
        self.end_ids = _end_ids(model, tokenizer)
        """The tokens that end a text."""
        self.batch_tokens = TOKENS_PER_BATCH
        """Maximum number of tokens in a forward pass (`engine.batch_tokens`); a GPU is faster with more."""
        self.reads_special_tokens = False
        """Whether a text's special tokens are read as such (a rendered chat template) instead of as plain text."""
        self.static_steps: StaticSteps | None = None
        """Runs steps of single tokens in fixed buffers; None where each runs by itself."""
        config = model.config.get_text_config()
        self.start_id = loading.start_token(tokenizer, model.get_input_embeddings().weight.shape[0], name)
        self._anchor = self.encode("a")
        self._anchor_length = len(self._decoded(self._anchor))
        self.context_length: int = loading.context_length(config) or 1024
        self._layer_types = set(getattr(config, "layer_types", None) or ["sliding_attention"])
        self._prefixes: dict[tuple[int, ...], Prefix] = {}
        self.fast_length = loading.fast_length(config)
        """Number of cached keys up to which a batch is read with a cache and a mask; beyond, it takes the slow path (`exact`)."""
        exact.probe(self)

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, dtype: str = "auto", device: str = "auto"
    ) -> LanguageModel:
        """Loads a bundled model, a folder or a hub model. UserError if it is not causal, or cannot be reached."""
        name = str(name_or_path)
        device = loading.choose_device(device)
        model, tokenizer = loading.load_causal(name, loading.choose_dtype(dtype, device))
        return cls(model.to(device), tokenizer, name)

    def use_graphs(self) -> None:
        """Runs this thread's steps of single tokens as CUDA graphs where the model is on a GPU."""
        if self.device.type == "cuda":
            self.use_static_steps(captures=True)

    def use_static_steps(self, captures: bool = False) -> None:
        """Runs this thread's steps in buffers of fixed shape; where that `captures`, as CUDA graphs."""
        self.static_steps = StaticSteps(self._read, self.name, captures)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, nothing added; special tokens are plain text unless `reads_special_tokens`."""
        if not self.reads_special_tokens:
            return loading.encode(self.tokenizer, text)
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        head = len(self.bos_ids)
        return ids[head:] if ids[:head] == self.bos_ids else ids  # templates write the BOS themselves

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, as `encode` gives them."""
        if self.reads_special_tokens or not texts:
            return [self.encode(text) for text in texts]
        ids: list[list[int]] = loading.tokens_of(self.tokenizer, list(texts)).input_ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids that follow other text, special tokens left out."""
        # After another token, since some tokenizers drop the blank before a text's first word; others add one.
        return self._decoded([*self._anchor, *ids])[self._anchor_length :]

    def _decoded(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def check_tool_names(self, names: Iterable[str]) -> None:
        """`UserError` for a name that this tokenizer does not keep: one that is a special token, or has one in it."""
        for name in names:
            call = linearise(ApiCall(name, "x", "y"))
            if self.decode(ids := self.encode_continuation(call)) != call:
                added = self.tokenizer.added_tokens_decoder
                special = [added[n].content for n in ids if n in added and added[n].special]
                reason = f"has the special token {special[0]!r}" if special else "changes it"
                raise UserError(
                    f"tool: a call of {name} is lost, since the tokenizer of {self.name} {reason}; give the tool another name, "
                    f"tool.KEY.name=..."
                )

    def encode_text(self, text: str) -> Encoding:
        """x_1..x_n of a document, with the character position before each token."""
        encoded = loading.tokens_of(self.tokenizer, text, offsets=True)
        return Encoding(list(encoded.input_ids), loading.token_positions(text, encoded.offset_mapping))

    def encode_continuation(self, text: str) -> list[int]:
        """Token ids of `text` where it follows other text."""
        return loading.encode_continuation(self.tokenizer, text)

    def encode_after_start(self, text: str) -> list[int]:
        """Token ids of `text` directly after the start token."""
        return self.encode("a" + START + text)[len(self.encode("a" + START)) :]

    @functools.cached_property
    def opening_ids(self) -> list[int]:
        """The tokens that begin with a parenthesis."""
        tokens = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        return [n for n, token in enumerate(tokens) if token is not None and token.startswith("(")]

    @functools.cached_property
    def ending_ids(self) -> np.ndarray:
        """The tokens whose text contains the last character of a call's end or arrow, [tokens]."""
        ids = sorted(self.tokenizer.get_vocab().values())
        # Each after another token, as in `decode`; one by one, a large vocabulary would take seconds.
        rows = [[*self._anchor, token] for token in ids]
        texts = self.tokenizer.backend_tokenizer.decode_batch(rows, skip_special_tokens=True)
        ends = (END[-1], ARROW[-1])
        return np.array([n for n, text in zip(ids, texts, strict=True) if any(end in text for end in ends)])

    def gpu_memory(self) -> Memory | None:
        """What batches are sized by on a GPU; None on another device."""
        if self.device.type != "cuda":
            return None
        reused = self.static_steps.nbytes if self.static_steps else 0
        vocabulary = self.model.config.get_text_config().vocab_size
        has_buffers = self.static_steps is not None
        return Memory(self.cache_bytes, vocabulary, free_bytes(self.device) + reused, has_buffers)

    @functools.cached_property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of one token, measured: architectures differ in what they keep."""
        _, branches = self.prefill([[self.start_id]])
        return kv_cache.size_in_bytes(branches.cache)

    def cut_left(self, ids: list[int], room: int) -> list[int]:
        """As many of a prompt's last tokens as fit into `room`, after the tokens that every sequence begins with."""
        head = self.bos_ids
        return ids if len(ids) <= room else (head + ids[len(ids) - max(0, room - len(head)) :])[:room]

    def start_ids(self) -> list[int]:
        """The context of a text's first token when no other text precedes it."""
        return self.bos_ids or [self._first_token()]

    def _first_token(self) -> int:
        token = loading.first_token(self.tokenizer)
        return self.start_id if token is None else token

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

        `keep` may be a mask [batch, length]; the logits of the tokens it selects are then [selected, vocabulary].
        `visible` [batch, length, cached + length] says which keys each token sees; `cache` grows in place.
        """
        if exact.is_needed(cache, visible.shape[-1], self.fast_length):
            return exact.forward(self, ids, visible, cache, keep)
        logits = self._read(ids, visible, positions, cache, keep)
        if self.fast_length < math.inf:
            exact.remember(cache, ids.to(self.device))
        return logits

    @property
    def steps_are_static(self) -> bool:
        """Whether steps run in buffers of fixed shape."""
        steps = self.static_steps
        return steps is not None and self.fast_length == math.inf and steps.is_own_thread

    @torch.inference_mode()
    def step(
        self,
        ids: torch.Tensor,
        visible: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache,
        write_index: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As `forward`, for one token of each branch; on a GPU in fixed buffers, so that a CUDA graph can replay it.

        `write_index` [batch, length] has the columns of fixed layers that the tokens are written to; growing ones append them.
        """
        if self.static_steps is not None and self.steps_are_static:
            return self.static_steps(ids, visible, positions, cache, write_index)
        return self.forward(ids, visible, positions, cache)

    def _read(
        self,
        ids: torch.Tensor,
        visible: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache,
        keep: int | torch.Tensor = 0,
    ) -> torch.Tensor:
        logits: torch.Tensor = self.model(
            input_ids=ids.to(self.device),
            attention_mask=self._attention_mask(visible.to(self.device)),
            position_ids=positions.to(self.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep.to(self.device) if isinstance(keep, torch.Tensor) else keep,
        ).logits
        return logits

    def _attention_mask(self, visible: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        """Added to the attention scores [batch, 1, length, keys]; a dictionary by layer type where a model has several."""

        def added(seen: torch.Tensor) -> torch.Tensor:
            mask = torch.zeros(seen.shape, dtype=self.dtype, device=self.device)
            return mask.masked_fill_(~seen, torch.finfo(self.dtype).min)[:, None]

        sliding = "sliding_attention" in self._layer_types
        window = getattr(self.model.config.get_text_config(), "sliding_window", None) if sliding else None
        if not window or visible.shape[-1] <= window:
            return added(visible)
        # A token's visible keys are in the order of its text, even with hidden keys between them.
        seen = visible.cumsum(-1, dtype=torch.int32)
        slid = added(visible & (seen > seen[..., -1:] - window))
        if self._layer_types == {"sliding_attention"}:
            return slid
        full = added(visible)
        return {kind: slid if kind == "sliding_attention" else full for kind in self._layer_types}

    def logits_after(
        self, sequences: Sequence[Sequence[int]], indices: Sequence[Sequence[int]]
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Batches of similar length: the numbers of their sequences, and the float32 logits [tokens, vocabulary] after these tokens."""
        lengths = [max(some, default=-1) + 1 for some in indices]
        for batch in batching.by_length(lengths, [len(some) for some in indices], self.batch_tokens):
            batch = [n for n in batch if len(indices[n])]
            if slow := [n for n in batch if lengths[n] > self.fast_length]:
                read = [sequences[n][: lengths[n]] for n in slow]
                yield slow, torch.cat(exact.read(self, read, [indices[n] for n in slow])).float()
            batch = [n for n in batch if lengths[n] <= self.fast_length]
            if not batch:
                continue
            ids = batching.padded([sequences[n][: lengths[n]] for n in batch], "right")
            keep = torch.zeros_like(ids, dtype=torch.bool)
            rows = [row for row, n in enumerate(batch) for _ in indices[n]]
            keep[rows, [index for n in batch for index in indices[n]]] = True
            ids = ids.to(self.device)
            with torch.inference_mode():
                # Without a 4-D mask attention knows that it is causal, and computes half as much.
                output = self.model(
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),  # hides nothing, and avoids a warning
                    use_cache=False,
                    logits_to_keep=keep.to(self.device),
                )
            yield batch, output.logits.float()

    def prefill(
        self,
        contexts: Sequence[Sequence[int]],
        prefix: Prefix | None = None,
        keep: Sequence[int] | None = None,
    ) -> tuple[torch.Tensor, Branches]:
        """Reads contexts side by side, padded on the left; returns logits and a batch with one branch each.

        The logits are those of the last token of each [batch, vocabulary], or of the last `keep[n]` tokens of context
        n, one context after another [sum of keep, vocabulary].
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
        """The cache of tokens that many contexts begin with; the last ones requested are kept."""
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
        indices: Sequence[Sequence[int]],
        calls: bool = True,
    ) -> list[TokenScores]:
        """log p of some tokens of each sequence given those before them, batched by length within the token budget.

        `indices[n]` are the tokens' indices in sequence n, rising and at least 1. Only their rows are projected to the
        vocabulary; log p is taken from their logits in float32. Without `calls` the start token has probability 0
        (paper, footnote 5), except where the text contains it, which would otherwise be impossible.
        """
        nothing = TokenScores(torch.empty(0), torch.empty(0, dtype=torch.bool))
        scores = [nothing] * len(sequences)
        before = [[index - 1 for index in some] for some in indices]
        scored: list[int] = []
        parts: list[tuple[torch.Tensor, torch.Tensor]] = []
        for batch, logits in self.logits_after(sequences, before):
            targets = [sequences[n][index] for n in batch for index in indices[n]]
            expected = torch.tensor(targets, device=self.device)
            if not calls:
                with torch.inference_mode():
                    logits[expected != self.start_id, self.start_id] = -torch.inf
            log_probs = logits.gather(-1, expected[:, None])[:, 0] - logits.logsumexp(-1)
            parts.append((log_probs, logits.argmax(-1) == expected))
            scored += batch
        # Fetched once: a GPU works on while the next batch is prepared.
        counts = [len(indices[n]) for n in scored]
        fetched = [torch.cat(part).cpu().split(counts) for part in zip(*parts, strict=True)]
        for n, *score in zip(scored, *fetched, strict=True):
            scores[n] = TokenScores(*score)
        return scores

    def start_log_probs(self, sequences: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """log p(<API> | sequence up to and including token j) for each token j of each sequence, [length]."""
        starts = [torch.empty(0)] * len(sequences)
        everywhere = [range(len(ids)) for ids in sequences]
        for batch, logits in self.logits_after(sequences, everywhere):
            log_probs = (logits[:, self.start_id] - logits.logsumexp(-1)).cpu()
            counts = [len(sequences[n]) for n in batch]
            for n, part in zip(batch, log_probs.split(counts), strict=True):
                starts[n] = part
        return starts

    def generate(self, prompts: Sequence[str], max_new_tokens: int, stop: Sequence[str] = ()) -> list[str]:
        """Greedy continuations, cut before the first stop text. Prompts that share a long head share its cache."""
        longest = self.context_length - max_new_tokens
        if longest < 1:
            raise UserError(
                f"{self.name}: {max_new_tokens} new tokens leave no room for a prompt in its context of "
                f"{self.context_length} tokens"
            )
        encoded = [self.cut_left(self.bos_ids + self.encode(prompt), longest) for prompt in prompts]
        texts = [""] * len(encoded)
        # The common beginning is read once; at least one token is left for each.
        head = os.path.commonprefix([ids[:-1] for ids in encoded]) if len(encoded) > 1 else []
        prefix = self.prefix(head) if len(head) >= 16 else None
        rest = [ids[len(head) :] if prefix else ids for ids in encoded]
        for batch in batching.by_length([len(ids) for ids in rest], [1] * len(rest), self.batch_tokens):
            written = self._greedy([rest[n] for n in batch], prefix, max_new_tokens, stop)
            for n, ids in zip(batch, written, strict=True):
                texts[n] = cut_at(self.decode(ids), stop)
        return texts

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

        A text longer than the context is read in disjoint windows, each token scored once, as lm-eval does. Tokens that
        the tokenizer puts before a text (a BOS) count as its first ones, as in lm-eval.
        """
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        encoded = [self.bos_ids + self.encode(text) for text in texts]
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
            head = self.bos_ids + self.encode(context) if context else self.start_ids()
            start = self.bos_ids if context else head
            tail = (start + self.encode(context + continuation))[len(head) :]
            whole = (head + tail)[-(self.context_length + 1) :]
            sequences.append(whole)
            tails.append(min(len(tail), len(whole) - 1))
        return self._score_tails(sequences, tails)

    def _score_tails(
        self, sequences: Sequence[Sequence[int]], tails: Sequence[int], calls: bool = True
    ) -> list[tuple[float, bool]]:
        """(log p in nats, whether greedy decoding would write them) of the last `tails[n]` tokens of each sequence."""
        indices = [range(len(ids) - tail, len(ids)) for ids, tail in zip(sequences, tails, strict=True)]
        scores = self.score(sequences, indices, calls=calls)
        return [(float(score.log_probs.double().sum()), bool(score.greedy.all())) for score in scores]


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a text: the tokenizer's, and those of the model's generation settings."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    several = named if isinstance(named, list | tuple) else [named]
    return frozenset(int(token) for token in [tokenizer.eos_token_id, *several] if token is not None)
