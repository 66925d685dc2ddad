"""The method read literally: no cache, no batch, one sequence and one loss at a time (paper, section 2).

Slow on purpose. Every fast path of the product is held to it.
"""

from __future__ import annotations

import torch

from toolformer.annotation.candidates import ToolSettings
from toolformer.annotation.propose import draw, uniforms
from toolformer.calls import ApiCall, CallSyntaxError, call_end, linearise, parse
from toolformer.decoding.decoder import Completion
from toolformer.documents import Document
from toolformer.language_model import LanguageModel
from toolformer.tools.base import Result, Tool


@torch.inference_mode()
def logits(language_model: LanguageModel, ids: list[int]) -> torch.Tensor:
    """[length, vocabulary] by a plain call of the Transformers model."""
    return language_model.model(input_ids=torch.tensor([ids])).logits[0].float()


def start_probabilities(language_model: LanguageModel, settings: ToolSettings, text: str) -> list[float]:
    """p_i = p_M(<API> | P_a(x), x_1..x_{i-1}) for every i."""
    prompt = language_model.own_prefix + language_model.encode(settings.prompt.fill(text))
    ids = language_model.encode(text)
    return [
        float(logits(language_model, prompt + ids[:i])[-1].softmax(-1)[language_model.start_id])
        for i in range(len(ids))
    ]


def sample_call(
    language_model: LanguageModel,
    settings: ToolSettings,
    text: str,
    doc_id: str,
    i: int,
    position: int,
    sample: int,
    seed: int,
) -> str:
    """What M writes after [P_a(x), x_1..x_{i-1}, <API>] until </API>, drawn with the product's uniforms."""
    context = language_model.own_prefix + language_model.encode(settings.prompt.fill(text))
    context = context + language_model.encode(text)[:i] + [language_model.start_id]
    draws = uniforms(seed, doc_id, settings.key, position, sample, settings.max_call_tokens)
    written = language_model.encode("a [" + settings.name)[2:] if settings.force_name else []
    for uniform in draws:
        written.append(int(draw(logits(language_model, context + written)[-1:], torch.tensor([uniform]))))
        end = call_end(language_model.decode(written))
        if end is not None:
            return language_model.decode(written)[:end]
    return language_model.decode(written)


def loss(language_model: LanguageModel, text: str, i: int, call: ApiCall | None) -> float:
    """L_i(z) over the whole text, with w̃_t = max(0, 1 − 0.2·t) normalised over all t."""
    z = language_model.encode(linearise(call)) if call else []
    ids = language_model.encode(text)
    head = language_model.own_prefix + z
    if not head and i == 0:
        head = language_model.document_start()
    log_probs = logits(language_model, head + ids).log_softmax(-1)
    total = sum(max(0.0, 1 - 0.2 * t) for t in range(1000))
    result = 0.0
    for j in range(i, len(ids)):
        weight = max(0.0, 1 - 0.2 * (j - i)) / total
        if weight:
            result -= weight * float(log_probs[len(head) + j - 1, ids[j]])
    return result


def greedy(language_model: LanguageModel, prompt: str, new_tokens: int) -> Completion:
    """Plain greedy decoding, one token and one full pass at a time."""
    ids = language_model.own_prefix + language_model.encode(prompt)
    written: list[int] = []
    while len(written) < new_tokens:
        token = int(logits(language_model, ids + written)[-1].argmax())
        if token == language_model.tokenizer.eos_token_id:
            break
        written.append(token)
    text = language_model.decode(written)
    return Completion(text, text, tokens=len(written))


def decode(
    language_model: LanguageModel,
    prompt: str,
    new_tokens: int,
    tools: dict[str, Tool],
    document: Document,
    k: int,
    max_call_tokens: int,
) -> Completion:
    """Top-k API decoding of one prompt with at most one call, one token and one full pass at a time."""
    ids = language_model.own_prefix + language_model.encode(prompt)
    written: list[int] = []
    before, plain = "", ""
    counted = 0
    call: ApiCall | None = None
    failed: str | None = None
    while counted + len(written) < new_tokens:
        row = logits(language_model, ids + written)[-1]
        likeliest = int(row.argmax())
        wants = bool((row > row[language_model.start_id]).sum() < k)
        if wants and call is None and failed is None:
            body: list[int] = []
            failed = "call not ended"
            while len(body) < max_call_tokens:
                names = [language_model.encode("a [" + tool.name)[2:] for tool in tools.values()]
                names = [name for name in names if name[: len(body)] == body]
                row = logits(language_model, ids + written + [language_model.start_id] + body)[-1]
                if names and not any(len(name) == len(body) for name in names):
                    choices = sorted({name[len(body)] for name in names})
                    token = max(choices, key=lambda choice: float(row[choice]))
                else:
                    token = int(row.argmax())
                if token == language_model.tokenizer.eos_token_id:
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
                    result = (
                        tool.run([parsed.input], [document])[0] if tool else Result(reason="tool not allowed")
                    )
                    failed = result.reason
                    if result.text is not None:
                        call = parsed.with_result(result.text)
                        before = language_model.decode(written) + linearise(call)
                        plain = language_model.decode(written)
                        counted = len(written)
                        ids = ids + written + [language_model.start_id] + body
                        ids = ids + language_model.encode(f" {call.result}]")
                        written = []
                    break
                if end is not None:
                    failed = "call without arrow"
                    break
            continue
        if likeliest == language_model.tokenizer.eos_token_id:
            break
        if likeliest == language_model.start_id:
            likeliest = int(row.topk(2).indices[1])
        written.append(likeliest)
    tail = language_model.decode(written)
    return Completion(before + tail, plain + tail, call, failed)
