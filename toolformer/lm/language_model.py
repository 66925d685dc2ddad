"""A causal language model as the method needs it: start probabilities, branching caches, losses, greedy text.

Most models (GPT-2, GPT-J, Llama, ...) respect a cache, an explicit attention mask and position ids (`rows.TreeRows`); a
probe finds those that do not, which are read with stock passes alone (`plain.PlainRows`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_utils import slice_logits_to_keep

from toolformer.calls import ARROW, END, START, ApiCall, linearise
from toolformer.errors import UserError
from toolformer.lm import batching, fast_linear, loading, memory, plain, probe
from toolformer.lm.placement import place
from toolformer.lm.plain import PlainRows
from toolformer.lm.rows import Rows, TreeRows
from toolformer.lm.stop import cut_at, has_ended
from toolformer.lm.store import StateShape

HEADS_KEPT = 8
"""Shared beginnings whose keys and values are kept: few-shot prompts, one per tool, and a few for the tools' own models."""


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
        self.is_spread = len({*getattr(model, "hf_device_map", {}).values()}) > 1
        """Whether layers are on several GPUs. Inputs go to the device of the embedding, and logits come back to it."""
        if self.device.type == "cpu":
            fast_linear.use_fast_linear(self.model)
        self.end_ids = _end_ids(model, tokenizer)
        """The tokens that end a text."""
        self.batch_tokens = memory.batch_tokens(self.device)
        """Maximum number of tokens in a forward pass (`engine.batch_tokens`)."""
        self.reads_special_tokens = False
        """Whether a text's special tokens are read as such (a rendered chat template) instead of as plain text."""
        self.graphs = False
        """Whether a GPU runs steps of single tokens as CUDA graphs (`lm.graphs`)."""
        config = model.config.get_text_config()
        self.start_id = loading.start_token(tokenizer, model.get_input_embeddings().weight.shape[0], name)
        self._anchor = self.encode("a")
        self._anchor_length = len(self._decoded(self._anchor))
        # Beyond its fast length, a model reads all of a text otherwise than its beginning alone.
        fast_length = loading.fast_length(config)
        self.context_length: int = loading.context_length(config) or 1024
        if 0 < fast_length < self.context_length:
            self.context_length = int(fast_length)
        self._heads: dict[tuple[int, ...], list[torch.Tensor]] = {}
        self._mutex = threading.Lock()
        self.is_plain = False
        """Whether only stock forward passes give this model's logits (`plain`)."""
        self.is_plain = probe.needs_stock_passes(self)
        self._heads.clear()

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, dtype: str = "auto", device: str = "auto"
    ) -> LanguageModel:
        """Loads a bundled model, a folder or a hub model, on one device or on all GPUs (`placement`).

        UserError if it is not causal, cannot be reached, or has no room.
        """
        name = str(name_or_path)
        return cls(*place(name, dtype, device).load(), name)

    def load(self) -> None:
        """Nothing: it is loaded (`lazy.LazyLanguageModel` may not be)."""

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
                reason = f"has the special token {special[0]!r}" if special else "changes it in a call"
                raise UserError(
                    f"tool: the name {name} cannot be used, since the tokenizer of {self.name} {reason}; give the tool another name, "
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
    def sorted_texts(self) -> list[tuple[str, int]]:
        """The text of each token where it follows another, as in `decode`, with its id; sorted, and none that is empty."""
        ids = sorted(self.tokenizer.get_vocab().values())
        # One by one, a large vocabulary would take seconds.
        rows = [[*self._anchor, token] for token in ids]
        texts = self.tokenizer.backend_tokenizer.decode_batch(rows, skip_special_tokens=True)
        own = ((text[self._anchor_length :], n) for n, text in zip(ids, texts, strict=True))
        return sorted((text, n) for text, n in own if text)

    @functools.cached_property
    def ending_ids(self) -> np.ndarray:
        """The tokens whose text contains the last character of a call's end or arrow, [tokens]."""
        ends = (END[-1], ARROW[-1])
        return np.array(sorted(n for text, n in self.sorted_texts if any(end in text for end in ends)))

    @functools.cached_property
    def state_shapes(self) -> list[tuple[StateShape, StateShape]]:
        """The shapes of each layer's keys and values, as one pass shows them: architectures differ in what they keep."""
        cache = Cache(layer_class_to_replicate=DynamicLayer)
        with torch.inference_mode():
            ids = torch.tensor([[self.start_id]], device=self.device)
            self.model(input_ids=ids, past_key_values=cache, use_cache=True)
        shapes = []
        for layer in cache.layers:
            assert isinstance(layer, DynamicLayer) and layer.keys is not None and layer.values is not None
            keys, values = (
                StateShape(states.shape[1], states.shape[3], states.dtype, states.device)
                for states in (layer.keys, layer.values)
            )
            shapes.append((keys, values))
        return shapes

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

    def rows(self, heads: Iterable[Sequence[int]] = ()) -> Rows:
        """Empty rows. `heads` are beginnings that many of them share, which are read once."""
        return (PlainRows if self.is_plain else TreeRows)(self, heads)

    def head_states(self, heads: Collection[tuple[int, ...]]) -> dict[tuple[int, ...], list[torch.Tensor]]:
        """The keys and values of heads, as `Store.take` gives them; those of the last heads requested are kept."""
        with self._mutex:  # a tool's model may be asked by several threads
            states = {head: self._heads.pop(head) for head in heads if head in self._heads}
        if new := [head for head in heads if head not in states]:
            rows = TreeRows(self)
            rows.read(range(len(new)), new)
            states |= {head: rows.states(n) for n, head in enumerate(new)}
        with self._mutex:
            self._heads |= states
            while len(self._heads) > HEADS_KEPT:
                del self._heads[next(iter(self._heads))]
        return states

    def logits(self, keep: int | torch.Tensor, **inputs: Any) -> torch.Tensor:
        """The logits of a forward pass at the positions to `keep`, as Transformers has it (`logits_to_keep`)."""
        logits: torch.Tensor
        if self.is_spread and isinstance(keep, torch.Tensor):
            # The states that Transformers would choose from are on another device than the positions.
            logits = slice_logits_to_keep(self.model(**inputs).logits, keep)
        else:
            logits = self.model(**inputs, logits_to_keep=keep).logits
        return logits

    def logits_after(
        self, sequences: Sequence[Sequence[int]], indices: Sequence[Sequence[int]]
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Batches of similar length: the numbers of their sequences, and the float32 logits [tokens, vocabulary] after these tokens."""
        lengths = [max(some, default=-1) + 1 for some in indices]
        for batch in batching.by_length(lengths, [len(some) for some in indices], self.batch_tokens):
            batch = [n for n in batch if len(indices[n])]
            if not batch:
                continue
            if self.is_plain:
                read = [sequences[n][: lengths[n]] for n in batch]
                yield batch, torch.cat(plain.read(self, read, [indices[n] for n in batch])).float()
                continue
            ids = batching.padded([sequences[n][: lengths[n]] for n in batch])
            keep = torch.zeros_like(ids, dtype=torch.bool)
            rows = [row for row, n in enumerate(batch) for _ in indices[n]]
            keep[rows, [index for n in batch for index in indices[n]]] = True
            ids = ids.to(self.device)
            with torch.inference_mode():
                # Without a 4-D mask attention knows that it is causal, and computes half as much.
                logits = self.logits(
                    keep.to(self.device),
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),  # hides nothing, and avoids a warning
                    use_cache=False,
                )
            yield batch, logits.float()

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

    def generate(
        self,
        prompts: Sequence[str],
        max_new_tokens: int,
        stop: Sequence[str] = (),
        batch_tokens: int | None = None,
    ) -> list[str]:
        """Greedy continuations, cut before the first stop text. What many prompts begin with is read once.

        `batch_tokens` bounds the tokens of a forward pass in place of the model's own.
        """
        longest = self.context_length - max_new_tokens
        if longest < 1:
            raise UserError(
                f"{self.name}: {max_new_tokens} new tokens leave no room for a prompt in its context of "
                f"{self.context_length} tokens"
            )
        encoded = [self.cut_left(self.bos_ids + self.encode(prompt), longest) for prompt in prompts]
        heads = batching.shared_heads(encoded)
        texts = [""] * len(encoded)
        lengths = [len(ids) for ids in encoded]
        for batch in batching.by_length(lengths, [1] * len(encoded), batch_tokens or self.batch_tokens):
            written = self._greedy([encoded[n] for n in batch], heads, max_new_tokens, stop)
            for n, ids in zip(batch, written, strict=True):
                texts[n] = cut_at(self.decode(ids), stop)
        return texts

    def _greedy(
        self,
        contexts: Sequence[Sequence[int]],
        heads: Sequence[Sequence[int]],
        limit: int,
        stop: Sequence[str],
    ) -> list[list[int]]:
        rows, active = self.rows(heads), list(range(len(contexts)))
        written: list[list[int]] = [[] for _ in contexts]
        logits = rows.read(active, contexts)
        while active:
            chosen = dict(zip(active, logits.argmax(-1).tolist(), strict=True))
            going = []
            for n, token in chosen.items():
                if token not in self.end_ids:
                    written[n].append(token)
                    if len(written[n]) < limit and not has_ended(written[n], self.decode, stop):
                        going.append(n)
                        continue
                rows.free(n)
            active = going
            if active:
                logits = rows.read(active, [[chosen[n]] for n in active])
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
