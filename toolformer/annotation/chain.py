"""Annotation from left to right: calls that build on calls (`propose.chain`, beyond the paper).

Positions are chosen once, from the start probabilities in the plain text, as without it. Then each text is annotated from
left to right: at a position, calls are sampled, executed and scored with the calls kept before it, and their results, in
the text. Sampling reads them after the few-shot prompt, whose copy of the text stays plain. The losses are those of
L_i(z) with x_1..x_{i-1} replaced by the text with its kept calls; z still goes before all of it.

Which calls are kept is decided before the next position, by the rules of `merge.decide`: of each tool the sample with the
largest gain that reaches τ_f. The tools at one position all see the same text, so their order does not matter. The n-th
positions of all documents are done together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from toolformer.annotation.candidates import Candidate, Kept, ToolSettings, Window, text_room
from toolformer.annotation.merge import row
from toolformer.annotation.results import Rules, filtered
from toolformer.calls import ApiCall, linearise
from toolformer.lm.language_model import Encoding, LanguageModel
from toolformer.tools.prompt_sets import UNPROMPTED


def annotate_chain(
    language_model: LanguageModel,
    settings: Sequence[ToolSettings],
    chosen: Sequence[Candidate],
    rules: Rules,
    sample: Callable[[ToolSettings, Sequence[Candidate]], list[Candidate]],
    finish: Callable[[Sequence[Candidate], Kept], list[Candidate]],
    on_step: Callable[[str], object] = lambda step: None,
) -> list[Candidate]:
    """The candidates at all positions of all tools, scored.

    Args:
        chosen: the positions that are tried, as candidates without a call.
        rules: decide which calls are kept.
        sample: samples calls of a tool at positions, each in the context of its window.
        finish: executes and scores calls, each in the context of its window.
    """
    kept: dict[str, list[tuple[int, ApiCall]]] = {}
    done: list[Candidate] = []
    for n, positions in enumerate(_turns(chosen), start=1):
        on_step(f"chain, position {n}, {len(positions)} candidates")
        sampled: list[Candidate] = []
        for tool in sorted(settings, key=lambda tool: tool.key):
            tried = [candidate for candidate in positions if candidate.tool == tool.key]
            sampled += sample(tool, [_in_context(language_model, each, kept, tool) for each in tried])
        contexts = {_place(each): _in_context(language_model, each, kept) for each in positions}
        scored = finish([_moved(candidate, contexts) for candidate in sampled], kept)
        plain = {_place(each): each for each in positions}
        scored = [_moved(candidate, plain) for candidate in scored]
        documents = {candidate.window.document for candidate in scored}
        decisions, _ = filtered([row(candidate) for candidate in scored], documents, rules)
        for candidate, decision in zip(scored, decisions, strict=True):
            if not decision.reason and candidate.call:
                calls = kept.setdefault(candidate.window.document.doc_id, [])
                calls.append((candidate.token_position, candidate.call))
        done += scored
    return done


def _turns(chosen: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """First the candidates at the first position of every document, then those at the second, and so on."""
    documents: dict[str, dict[int, list[Candidate]]] = {}
    for candidate in chosen:
        positions = documents.setdefault(candidate.window.document.doc_id, {})
        positions.setdefault(candidate.token_position, []).append(candidate)
    ordered = [[positions[i] for i in sorted(positions)] for positions in documents.values()]
    for n in range(max(map(len, ordered), default=0)):
        yield [candidate for positions in ordered if n < len(positions) for candidate in positions[n]]


def _place(candidate: Candidate) -> tuple[str, str, int]:
    return candidate.window.document.doc_id, candidate.tool, candidate.position


def _moved(candidate: Candidate, places: Mapping[tuple[str, str, int], Candidate]) -> Candidate:
    """A candidate in the context of another one at its position."""
    other = places[_place(candidate)]
    return replace(candidate, window=other.window, token_position=other.token_position)


def _in_context(
    language_model: LanguageModel, candidate: Candidate, kept: Kept, tool: ToolSettings | None = None
) -> Candidate:
    """A candidate in its window with the calls kept there before it.

    Args:
        tool: the tool whose prompt goes before the window; where these calls leave no room for it, the first ones are
            left out. None, for scoring, keeps all: `score` cuts a context that is too long.
    """
    window = candidate.window
    calls = [(i, call) for i, call in kept.get(window.document.doc_id, ()) if i >= window.start]
    pieces = language_model.encode_all([linearise(call) for _, call in calls])
    inserted = [(i, ids) for (i, _), ids in zip(calls, pieces, strict=True)]
    if tool:
        copies = 1 + (tool.prompt != UNPROMPTED)
        room = text_room(language_model, tool) - copies * len(window.ids)
        while inserted and sum(len(ids) for _, ids in inserted) > room:
            inserted.pop(0)
    ids, positions = list(window.encoding.ids), list(window.encoding.positions)
    for i, call in reversed(inserted):
        ids[i:i] = call
        # The position of the text there: a window's text is cut by its tokens' positions.
        positions[i:i] = [positions[i]] * len(call)
    added = len(ids) - len(window.encoding.ids)
    longer = Window(window.document, Encoding(ids, positions), window.start, window.end + added)
    return replace(candidate, window=longer, token_position=candidate.token_position + added)
