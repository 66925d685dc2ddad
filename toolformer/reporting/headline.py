"""The report's first sentence, in plain words, with the gain as its big figure. Claims only what interval and p carry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolformer.evaluation.in_words import count, right, subject, tool_words, tools_of
from toolformer.evaluation.metrics import GOLD_NATS
from toolformer.reporting.data import Evidence
from toolformer.reporting.formatting import SYSTEMS, in_table_order, name_of, ordered, title_of
from toolformer.reporting.outcome_tables import shown_p, signed
from toolformer.reporting.pairing import PAIRS, Compared, is_significant

Pair = tuple[str, str]
NO_DIFFERENCE = "No difference beyond chance"
_AGAINST = {"model": "before finetuning"}


@dataclass(frozen=True)
class Headline:
    """What a report says first; all empty if nothing was measured."""

    gain: str = ""
    """`+35 points`, or that there is no difference beyond chance; empty if nothing was compared."""
    sentence: str = ""
    basis: str = ""
    """The difference with its interval, p and n, and how the other benchmarks went."""


def headline(evidence: Evidence) -> Headline:
    """Of the first pair of systems with scores, the benchmark with most examples; else their perplexity; else one score."""
    for measure in ("scores", "perplexity"):
        pairs: dict[Pair, dict[str, Compared]] = {pair: {} for pair in PAIRS}
        for (task, system, other), compared in evidence.paired.items():
            # Perplexity is measured with calls disabled: Toolformer has none of its own.
            is_apart = measure == "scores" or system != "toolformer"
            if getattr(compared, measure) and is_apart and not task.endswith(f"/{GOLD_NATS}"):
                pairs.setdefault((system, other), {})[task] = compared
        if measured := [(pair, found) for pair, found in pairs.items() if found]:
            pair, found = measured[0]
            task = max(in_table_order(found), key=lambda task: _size(found[task]))
            make = _of_scores if measure == "scores" else _of_perplexity
            return make(evidence, pair, task, found)
    return _of_one(evidence)


def _size(compared: Compared) -> int:
    comparison = compared.scores or compared.perplexity
    return comparison.n if comparison else 0


def _of_scores(evidence: Evidence, pair: Pair, task: str, found: Mapping[str, Compared]) -> Headline:
    compared = found[task]
    scores, seeds = compared.scores, max(compared.seeds)
    assert scores
    value, low, high = signed(scores.difference, 1)
    did = right(task, title_of(task), scores.second, scores.n, seeds)
    theirs = count(task, scores.first, scores.n, seeds)
    sentence = f"{_subject(evidence, pair[0], task)} {did}, {_against(evidence, pair, task)} {theirs}{_tie(compared)}."
    if _made_no_call(evidence, pair[0], task):
        sentence += " It made no call."
    gain = f"{value.removesuffix('.0')} points" if verdict(compared) else NO_DIFFERENCE
    basis = f"The difference is {value} points [{low}, {high}]{_p(compared)}, n = {scores.n:,}."
    if len(found) > 1:
        verdicts = [verdict(other) for other in found.values()]
        basis += (
            f" Of all {len(found)} benchmarks on which the two were compared, {name_of(pair[0])} is better on "
            f"{verdicts.count(1)} and worse on {verdicts.count(-1)}; on {verdicts.count(0)} there is no difference "
            "beyond chance."
        )
    return Headline(gain, sentence, basis)


def _of_perplexity(evidence: Evidence, pair: Pair, task: str, found: Mapping[str, Compared]) -> Headline:
    compared = found[task]
    perplexity = compared.perplexity
    assert perplexity
    value, low, high = signed(perplexity.difference, 2)
    sentence = (
        f"{_subject(evidence, pair[0], task)} has perplexity {perplexity.second:.2f} on {title_of(task)}, "
        f"{_against(evidence, pair, task)} {perplexity.first:.2f}{_tie(compared)}."
    )
    basis = (
        f"Lower is better. The difference is {value} per {compared.unit or 'token'} [{low}, {high}]{_p(compared)}, "
        f"n = {perplexity.n:,}."
    )
    return Headline(f"{value} perplexity" if verdict(compared) else NO_DIFFERENCE, sentence, basis)


def _of_one(evidence: Evidence) -> Headline:
    """A sentence about one system where no two can be compared."""
    order = ordered((system for system, _ in evidence.scores), [*SYSTEMS][::-1])
    for system in order:
        tasks = in_table_order(task for row, task in evidence.scores if row == system)
        scored = [task for task in tasks if not task.endswith("perplexity")]
        task = max(scored or tasks, key=lambda task: evidence.scores[system, task].n)
        score = evidence.scores[system, task]
        did = f"has perplexity {score.value:.2f} on {title_of(task)}"
        if scored:
            did = right(task, title_of(task), score.value, score.n, len(score.runs))
        return Headline("", f"{_subject(evidence, system, task)} {did}.")
    return Headline()


def _tools(evidence: Evidence, task: str) -> Sequence[str] | None:
    """The tools that Toolformer had for a benchmark; None if no run of it says."""
    score = evidence.scores.get(("toolformer", task)) or evidence.scores.get(("toolformer_disabled", task))
    return tools_of(score.run) if score else None


def _subject(evidence: Evidence, system: str, task: str) -> str:
    return subject(system, _tools(evidence, task), name_of(system))


def _against(evidence: Evidence, pair: Pair, task: str) -> str:
    """The system that a pair's first is compared with, as the end of the sentence about it begins."""
    system, other = pair
    tools = _tools(evidence, task)
    if system == "toolformer" and other == "toolformer_disabled":
        if tools is not None and not tools:
            return "with calls disabled"
        return "without it" if tools is not None and len(tools) == 1 else "without them"
    if system in SYSTEMS:
        return _AGAINST.get(other, name_of(other))
    without = "without a tool" if tools is not None and not tools else f"without {tool_words(tools)}"
    return f"the model {_AGAINST.get(other, f'finetuned on calls but {without}')}"


def _made_no_call(evidence: Evidence, system: str, task: str) -> bool:
    metrics = evidence.scores[system, task].metrics if (system, task) in evidence.scores else {}
    return system == "toolformer" and metrics.get("n_ac") == metrics.get("n_failed", 0) == 0


def verdict(compared: Compared) -> int:
    """1 where the difference is above zero, -1 where it is below: by the corrected p and by the interval; else 0."""
    comparison = compared.scores or compared.perplexity
    if not comparison or not is_significant(compared):
        return 0
    return (comparison.difference.low > 0) - (comparison.difference.high < 0)


def _tie(compared: Compared) -> str:
    comparison = compared.scores or compared.perplexity
    assert comparison
    if verdict(compared):
        return ""
    return ": no difference beyond chance" if comparison.difference.value else ": no difference"


def _p(compared: Compared) -> str:
    if compared.p_value is None:
        return ""
    p = f", p = {shown_p(compared.p_value)}".replace("= <", "<")
    return p if compared.p_holm is None else f"{p} (corrected {shown_p(compared.p_holm)})"
