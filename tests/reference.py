"""The method read literally: no cache, no batch, one sequence and one loss at a time (paper, section 2).

Slow on purpose: tests compare every optimised path of the product with it.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, StoppingCriteria

from toolformer.annotation.candidates import ToolSettings
from toolformer.annotation.gumbel_sampling import draw_keys
from toolformer.calls import ApiCall, CallSyntaxError, call_end, linearise, parse
from toolformer.data import Document
from toolformer.decoding.decoder import Completion
from toolformer.lm.language_model import LanguageModel
from toolformer.tools.base import Tool


@torch.inference_mode()
def logits(language_model: LanguageModel, ids: list[int]) -> torch.Tensor:
    """[length, vocabulary] by a plain call of the Transformers model."""
    return language_model.model(input_ids=torch.tensor([ids], device=language_model.device)).logits[0].float()


def assert_stock(rows: torch.Tensor, language_model: LanguageModel, *sequences: list[int]) -> None:
    """Each row of logits is that of a fresh reading of its tokens."""
    for row, ids in zip(rows, sequences, strict=True):
        torch.testing.assert_close(row, logits(language_model, ids)[-1], atol=1e-4, rtol=0)


def start_probabilities(language_model: LanguageModel, settings: ToolSettings, text: str) -> list[float]:
    """p_i = p_M(<API> | P_a(x), x_1..x_{i-1}) for every i."""
    prompt = language_model.bos_ids + language_model.encode(settings.prompt.fill(text))
    ids = language_model.encode(text)
    return [
        float(logits(language_model, prompt + ids[:i])[-1].softmax(-1)[language_model.start_id])
        if prompt + ids[:i]
        else 0.0  # nothing predicts the first of all
        for i in range(len(ids))
    ]


def drawn(row: torch.Tensor, key: int) -> int:
    """The token with the largest p_i / E_i; E_i is exponential, by SplitMix64 of the key and i; row is [vocabulary]."""
    with np.errstate(over="ignore"):
        places = _splitmix(np.arange(len(row), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        z = _splitmix(places ^ np.array([key], dtype=np.int64).view(np.uint64))
    exponential = -np.log(((z >> np.uint64(11)) + 0.5) / 2.0**53)
    return int((row.float().softmax(-1).double().cpu().numpy() / exponential).argmax())


def _splitmix(z: np.ndarray) -> np.ndarray:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(31))


def loss(language_model: LanguageModel, text: str, i: int, call: ApiCall | None) -> float:
    """L_i(z) over the whole text, with w̃_t = max(0, 1 − 0.2·t) normalised over all t."""
    return loss_of_tokens(language_model, language_model.encode(text), i, call)


def loss_of_tokens(language_model: LanguageModel, ids: list[int], i: int, call: ApiCall | None) -> float:
    """`loss` of a text's tokens."""
    z = language_model.encode(linearise(call)) if call else []
    head = language_model.bos_ids + z
    if not head and i == 0:
        head = language_model.start_ids()
    log_probs = logits(language_model, head + ids).log_softmax(-1)
    total = sum(max(0.0, 1 - 0.2 * t) for t in range(1000))
    result = 0.0
    for j in range(i, len(ids)):
        weight = max(0.0, 1 - 0.2 * (j - i)) / total
        if weight:
            result -= weight * float(log_probs[len(head) + j - 1, ids[j]])
    return result


@dataclass(frozen=True)
class Sampled:
    """A sampled call with what the method says of it."""

    token_position: int
    sample: int
    start_probability: float
    text: str
    call: ApiCall | None = None
    """With its result; None for what is no call of the tool, or has no result."""
    losses: tuple[float, float, float] | None = None
    """L(e(c, r)), L(e(c, ε)), L(ε) in nats."""

    @property
    def gain(self) -> float:
        assert self.losses is not None
        return min(self.losses[1:]) - self.losses[0]


@torch.inference_mode()
def annotate(
    language_model: LanguageModel, settings: ToolSettings, tool: Tool, document: Document, seed: int
) -> list[Sampled]:
    """Steps 1 to 3 for one text: stock `generate` at each position, one call and one loss at a time."""
    prompt = language_model.bos_ids + language_model.encode(settings.prompt.fill(document.text))
    encoding = language_model.encode_text(document.text)
    rows = logits(language_model, prompt + encoding.ids)[:-1].softmax(-1)
    # Behind each token but the last; nothing speaks for the first of all.
    p = [0.0, *rows[:, language_model.start_id].tolist()][len(prompt) :]
    above = [
        i
        for i, place in enumerate(encoding.positions[: len(p)])
        if place is not None and p[i] > settings.start_threshold
    ]
    found = []
    for i in sorted(sorted(above, key=lambda i: -p[i])[: settings.max_positions]):
        place = encoding.positions[i]
        assert place is not None
        for sample in range(settings.samples):
            name = language_model.encode("a [" + settings.name)[2:] if settings.force_name else []
            context = prompt + encoding.ids[:i] + [language_model.start_id] + name
            draws = draw_keys(seed, document.doc_id, settings.key, place, sample, settings.max_call_tokens)
            draws = draws[: max(1, settings.max_call_tokens - len(name))]
            written = _generate(language_model, context, name, draws.tolist(), settings)
            text = language_model.decode(name + written)
            call, losses = _own_call(text, settings), None
            result = tool.run([call.input], [document])[0].text if call else None
            call = call.with_result(result) if call and result else None
            if call and call.result:
                call = call.with_result(_cut(language_model, call.result, settings.max_result_tokens))
            if call:
                with_result, without = (
                    loss(language_model, document.text, i, one) for one in (call, call.with_result(""))
                )
                losses = with_result, without, loss(language_model, document.text, i, None)
            found.append(Sampled(i, sample, p[i], _ended(text, settings) or text, call, losses))
    return found


def kept(found: Sequence[Sampled], threshold: float) -> dict[int, Sampled]:
    """Step 4: of each position the call with the largest gain, where it reaches τ_f."""
    best: dict[int, Sampled] = {}
    for one in found:
        known = best.get(one.token_position)
        if one.losses and one.gain >= threshold and (known is None or one.gain > known.gain):
            best[one.token_position] = one
    return best


def _ended(text: str, settings: ToolSettings) -> str | None:
    """A sample up to its call's end; without a prompt also to where it asks for its own."""
    if not settings.prompt.instruction and ") ->" in text:
        return text[: text.index(") ->")] + ")]"
    end = call_end(text)
    return text[:end] if end is not None else None


def _own_call(text: str, settings: ToolSettings) -> ApiCall | None:
    ended = _ended(text, settings)
    try:
        call = parse(f"[{ended}")
    except CallSyntaxError:
        return None
    return call if ended and call.tool == settings.name and call.result is None else None


def _generate(
    language_model: LanguageModel,
    context: list[int],
    name: list[int],
    draws: Sequence[int],
    settings: ToolSettings,
) -> list[int]:
    """What stock `generate` writes when every token is the one that its key draws."""

    class Draw(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            token = drawn(scores[0] / settings.temperature, draws[input_ids.shape[1] - len(context)])
            return torch.full_like(scores, float("-inf")).index_fill(
                1, torch.tensor([token], device=scores.device), 0.0
            )

    class Ended(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
            written = name + input_ids[0, len(context) :].tolist()
            return torch.tensor(
                [_ended(language_model.decode(written), settings) is not None], device=input_ids.device
            )

    ids = torch.tensor([context], device=language_model.device)
    written = language_model.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=len(draws),
        do_sample=False,
        eos_token_id=10**9,  # a token that there is not: only </API> ends a sample
        pad_token_id=0,
        logits_processor=[Draw()],
        stopping_criteria=[Ended()],
    )
    return [int(token) for token in written[0, len(context) :]]


def stock(language_model: LanguageModel, prompt: str, new_tokens: int) -> list[int]:
    """What Transformers' own greedy `generate` writes."""
    ids = torch.tensor([language_model.bos_ids + language_model.encode(prompt)], device=language_model.device)
    written = language_model.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False, pad_token_id=0
    )
    return [int(token) for token in written[0, ids.shape[1] :]]


def decode(
    language_model: LanguageModel,
    prompt: str,
    new_tokens: int,
    tools: dict[str, Tool],
    document: Document,
    max_call_tokens: int,
    k: int = 10,
    max_calls: int = 1,
    max_result_tokens: int = 64,
    min_new_tokens: int = 0,
    stop: Sequence[str] = (),
    constrain_tool_name: bool = True,
    by_tool: Mapping[str, float] | None = None,
) -> tuple[Completion, list[int]]:
    """Decoding of one prompt with at most `max_calls` calls, one token and one full pass at a time.

    Returns also the tokens of the whole sequence: prompt, text, calls and results.
    """

    def following(tokens: int, ids: list[int]) -> torch.Tensor:
        """Logits [vocabulary] behind `ids`, the end of the text forbidden while there are too few new tokens."""
        row = logits(language_model, ids)[-1].clone()
        if tokens < min_new_tokens:
            row[list(language_model.end_ids)] = float("-inf")
        return row

    def wants_call(row: torch.Tensor, tool: str) -> bool:
        ahead = sum(other > row[language_model.start_id] for other in row.tolist())
        return ahead < (by_tool or {}).get(tool, k)

    def tool_of_call(ids: list[int]) -> str:
        """The key of the tool that a call behind these tokens names."""
        left = {key: language_model.encode("a [" + tool.name)[1:] for key, tool in tools.items()}
        for step in range(1, 9):
            if len(left) > 1:
                row = logits(language_model, ids)[-1]
                best = max({name[step] for name in left.values()}, key=lambda token: float(row[token]))
                ids = ids + [best]
                left = {key: name for key, name in left.items() if name[step] == best}
        return next(iter(left))

    ids = language_model.bos_ids + language_model.encode(prompt)
    written: list[int] = []
    before, plain = "", ""
    counted = of_calls = 0
    calls: list[ApiCall] = []
    failed: str | None = None
    begun = inner = cut = 0
    while counted + len(written) < new_tokens:
        row = following(counted + len(written), ids + written)
        likeliest = int(row.argmax())
        wants = any(wants_call(row, tool) for tool in tools)
        if wants and by_tool:
            wants = wants_call(row, tool_of_call(ids + written + [language_model.start_id]))
        if wants and len(calls) < max_calls and failed is None:
            body: list[int] = []
            failed = "call longer than its limit"
            while len(body) < max_call_tokens + len(language_model.encode("a ->")[1:]):
                names = [language_model.encode("a [" + tool.name)[2:] for tool in tools.values()]
                names = [name for name in names if constrain_tool_name and name[: len(body)] == body]
                open_call = [language_model.start_id] + body
                row = following(counted + len(written) + len(open_call), ids + written + open_call)
                if constrain_tool_name:
                    row[language_model.start_id] = float("-inf")
                choices = {name[len(body)] for name in names if len(name) > len(body)}
                if any(len(name) == len(body) for name in names):
                    choices |= _openings(language_model)
                if not constrain_tool_name:
                    choices = _spelling(language_model, body, [tool.name for tool in tools.values()])
                if choices:
                    token = max(sorted(choices), key=lambda choice: float(row[choice]))
                else:
                    token = int(row.argmax())
                if token in language_model.end_ids:
                    failed = "call not ended"
                    break
                body.append(token)
                text = language_model.decode(body)
                end = call_end(text)
                arrow = text.rfind("->")
                if arrow >= 0 and (end is None or arrow < end):
                    try:
                        parsed = parse("[" + text[:arrow].rstrip() + "]")
                    except CallSyntaxError:
                        if end is not None:
                            failed = "malformed call"
                            break
                        continue
                    tool = next((tool for tool in tools.values() if tool.name == parsed.tool), None)
                    assert tool
                    result = tool.run([parsed.input], [document])[0]
                    failed = result.reason
                    if result.text is not None:
                        whole = parsed.with_result(result.text).result or ""
                        call = parsed.with_result(_cut(language_model, whole, max_result_tokens))
                        calls.append(call)
                        cut += call.result != whole
                        before += language_model.decode(written) + linearise(call)
                        plain += language_model.decode(written)
                        counted += len(written)
                        of_calls += 1 + len(body)
                        ids = ids + written + [language_model.start_id] + body
                        ids = ids + language_model.encode(f" {call.result}]")
                        written = []
                    break
                if end is not None:
                    failed = "call without arrow"
                    break
            text = language_model.decode(body)
            begun += _has_result(text)
            inner += any(f"[{tool.name}(" in text.replace(" ", "") for tool in tools.values())
            continue
        if likeliest == language_model.start_id:
            others = row.clone()
            others[likeliest] = float("-inf")
            likeliest = int(others.argmax())
        if likeliest in language_model.end_ids:
            break
        written.append(likeliest)
        if any(end in plain + language_model.decode(written) for end in stop):
            break
    scored = plain + language_model.decode(written)
    stops = [scored.index(end) for end in stop if end in scored]
    scored = scored[: min(stops)] if stops else scored
    text = before + scored[len(plain) :]
    tokens = counted + len(written) + of_calls
    completion = Completion(
        text, scored, tuple(calls), failed, tokens, results_begun=begun, results_cut=cut, calls_in_calls=inner
    )
    return completion, ids + written


def _has_result(text: str) -> bool:
    """Whether a call's text has something between the first arrow outside of its input's quotes and the next bracket."""
    inside = False
    for index, character in enumerate(text):
        opens = re.fullmatch(r"[ \t]*[A-Za-z_][A-Za-z0-9_.\-]*[ \t]*\([ \t]*", text[:index])
        if (
            character == '"'
            and (inside or opens)
            and (len(text[:index]) - len(text[:index].rstrip("\\"))) % 2 == 0
        ):
            inside = not inside
        if text.startswith("->", index) and not inside:
            return text[index + 2 :].split("]")[0].strip() != ""
    return False


def _spelling(language_model: LanguageModel, body: list[int], names: Sequence[str]) -> set[int]:
    """The tokens that go on spelling one of the names and its parenthesis; none where one is complete."""
    wanted = [f"{name}(" for name in names]
    if any(language_model.decode(body).startswith(one) for one in wanted):
        return set()
    return {
        token
        for token in range(len(language_model.tokenizer))
        if (text := language_model.decode([*body, token])) != language_model.decode(body)
        and any(one.startswith(text) or text.startswith(one) for one in wanted)
    }


@functools.cache
def _openings(language_model: LanguageModel) -> set[int]:
    """The tokens that begin with a parenthesis."""
    vocabulary = range(language_model.model.config.vocab_size)
    return {token for token in vocabulary if language_model.decode([token]).startswith("(")}


def _cut(language_model: LanguageModel, result: str, limit: int) -> str:
    """A result without as many of its last tokens as leaves at most `limit`."""
    ids = language_model.encode(f" {result}")
    while len(language_model.encode(f" {result}")) > limit:
        ids = ids[:-1]
        result = language_model.decode(ids).rstrip("\ufffd").strip()
    return result


def fused_text(model: Any, tokenizer: Any, texts: list[str], tokens: int) -> str:
    """Each text through the encoder alone; all states in a row; one token after the other, no cache."""
    with torch.no_grad():
        states = [model.encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state for text in texts]
        fused = torch.cat(states, dim=1)
        written = [0]
        while len(written) <= tokens and written[-1] != 1:
            out = model(encoder_outputs=(fused,), decoder_input_ids=torch.tensor([written]))
            written.append(int(out.logits[0, -1].argmax()))
    return str(tokenizer.decode(written, skip_special_tokens=True))
