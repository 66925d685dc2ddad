"""Verbs on rows, in any order, beside stock forward passes."""

import random
from collections.abc import Iterable, Sequence

import torch

from tests.reference import logits
from toolformer.lm.language_model import LanguageModel

HEAD = [5, 9, 2, 14, 7, 3, 11, 4]
LONGEST = 30
"""Tokens of a row or a branch."""


class Replay:
    """Performs verbs on some rows, chosen by a seed, and compares the logits with those of stock passes."""

    def __init__(self, model: LanguageModel, seed: int) -> None:
        self.model, self.chance = model, random.Random(seed)
        self.rows = model.rows([HEAD])
        self.held: dict[int, list[int]] = {}
        self.branches: list[tuple[int, list[int]] | None] = []

    def perform(self, verbs: Iterable[str]) -> None:
        for verb in verbs:
            getattr(self, verb)()

    def read(self, has_every: bool = False) -> None:
        tokens = {
            row: self.tokens(min(self.chance.choice((1, 2, 5, 12)), LONGEST - len(self.held.get(row, ()))))
            for row in self.chance.sample(range(5), self.chance.randint(1, 4))
        }
        for row, ids in tokens.items():
            if row not in self.held and ids[0] % 2:
                tokens[row] = HEAD + ids
        tokens = {row: ids for row, ids in tokens.items() if ids}
        counts = [self.chance.randint(1, max(1, len(ids) - len(HEAD))) for ids in tokens.values()]
        if tokens:
            self.append(tokens)
            found = self.rows.read(list(tokens), list(tokens.values()), every=counts if has_every else ())
            ends = [
                self.held[row][: len(self.held[row]) - before]
                for row, count in zip(tokens, counts, strict=True)
                for before in (reversed(range(count)) if has_every else [0])
            ]
            self.check(found, ends)

    def read_every(self) -> None:
        self.read(has_every=True)

    def read_one(self) -> None:
        """Some rows read a token, beside others that read none."""
        if there := [row for row, ids in self.held.items() if len(ids) < LONGEST]:
            rows = self.chance.sample(there, self.chance.randint(1, len(there)))
            tokens = {row: self.tokens(self.chance.random() < 0.8) for row in rows}
            self.append(tokens)
            is_full = all(tokens.values()) and self.chance.random() < 0.5
            given = list(tokens.values())
            found = self.rows.read(rows, torch.tensor(given)[:, 0] if is_full else given)
            fed = [n for n, row in enumerate(rows) if tokens[row]]
            self.check(found[fed], [self.held[rows[n]] for n in fed])

    def fork(self) -> None:
        if self.held:
            row = self.chance.choice(list(self.held))
            ends = [self.chance.randint(1, len(self.held[row])) for _ in range(self.chance.randint(1, 3))]
            before = len(self.branches)
            assert list(self.rows.fork(row, ends)) == list(range(before, before + len(ends)))
            self.branches += [(row, self.held[row][:end]) for end in ends]

    def step(self) -> None:
        live = [(n, *one) for n, one in enumerate(self.branches) if one and len(one[1]) < LONGEST]
        if live:
            named = self.chance.choices(live, k=self.chance.randint(1, 6))
            if self.chance.random() < 0.7:  # the usual order
                named.sort(key=lambda branch: branch[1])
            tokens = self.tokens(len(named))
            grown = [(row, [*ids, token]) for (_, row, ids), token in zip(named, tokens, strict=True)]
            self.branches = list(grown)
            self.check(self.rows.step([n for n, _, _ in named], tokens), [ids for _, ids in grown])

    def rewind(self) -> None:
        if self.held:
            row = self.chance.choice(list(self.held))
            self.held[row] = self.held[row][: self.chance.randint(1, len(self.held[row]))]
            self.end_branches([row])
            self.rows.rewind(row, len(self.held[row]))

    def free(self) -> None:
        if self.held:
            row = self.chance.choice(list(self.held))
            del self.held[row]
            self.end_branches([row])
            self.rows.free(row)

    def tokens(self, count: int) -> list[int]:
        return [self.chance.randrange(1, 400) for _ in range(count)]

    def append(self, tokens: dict[int, list[int]]) -> None:
        self.end_branches(tokens)
        for row, ids in tokens.items():
            self.held[row] = self.held.get(row, []) + ids

    def end_branches(self, rows: Iterable[int]) -> None:
        kept = [None if one is None or one[0] in set(rows) else one for one in self.branches]
        self.branches = kept if any(kept) else []

    def check(self, found: torch.Tensor, sequences: Sequence[list[int]]) -> None:
        assert len(found) == len(sequences)
        for row, ids in zip(found, sequences, strict=True):
            torch.testing.assert_close(row, logits(self.model, ids)[-1], atol=1e-3, rtol=0)
