"""What a report says first: one system against another, in sentences."""

from __future__ import annotations

from benchmarks.figures import GOLD_NATS
from toolformer.reporting.data import Evidence
from toolformer.reporting.formatting import in_table_order, name_of, shown_count, title_of
from toolformer.reporting.outcome_tables import shown_p
from toolformer.reporting.pairing import PAIRS, Compared, is_significant


def headline(evidence: Evidence) -> str:
    """The first pair of systems with scores, on the benchmark with most examples, and a count of the others."""
    scored = {
        key: compared
        for key, compared in evidence.paired.items()
        if compared.scores and not key[0].endswith(GOLD_NATS)
    }
    pairs = dict.fromkeys([*PAIRS, *(key[1:] for key in scored)])
    system, other = next((pair for pair in pairs if any(key[1:] == pair for key in scored)), ("", ""))
    tasks = in_table_order(task for task, *pair in scored if tuple(pair) == (system, other))
    if not tasks:
        return ""
    found = {task: scored[task, system, other] for task in tasks}
    sentence = _sentence(max(found, key=lambda task: _n(found[task])), system, other, found)
    if len(found) == 1:
        return sentence
    verdicts = [_sign(compared) for compared in found.values()]
    return (
        f"{sentence} Of all {len(found)} benchmarks on which the two were compared, {name_of(system)} is better on "
        f"{verdicts.count(1)}, worse on {verdicts.count(-1)}, and on {verdicts.count(0)} no difference is shown."
    )


def _sentence(task: str, system: str, other: str, found: dict[str, Compared]) -> str:
    scores = found[task].scores
    assert scores
    ends = scores.difference
    value, low, high = (f"{end:+.1f}".replace("-", "−") for end in (ends.value, ends.low, ends.high))
    p = "" if scores.p_value is None else shown_p(scores.p_value)
    p = p and f", p {p}" if p.startswith("<") else p and f", p = {p}"
    if found[task].p_holm is not None:
        p += f" (corrected {shown_p(found[task].p_holm or 0.0)})"
    meaning = {1: "better by more than chance", -1: "worse by more than chance"}.get(_sign(found[task]), "")
    if not meaning:
        meaning = "a tie" if not ends.value else "no difference is shown; it may be chance"
    return (
        f"{title_of(task)}: {name_of(system)} has {scores.second:.1f} % right and {name_of(other)} {scores.first:.1f} %, a "
        f"difference of {value} points [{low}, {high}]{p}, n = {shown_count(scores.n)}: {meaning}."
    )


def _n(compared: Compared) -> int:
    return compared.scores.n if compared.scores else 0


def _sign(compared: Compared) -> int:
    """1 for better, -1 for worse, 0 where no difference is shown."""
    assert compared.scores
    return 0 if not is_significant(compared) else 1 if compared.scores.difference.value > 0 else -1
