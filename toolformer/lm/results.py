"""A tool's result as a text takes it in: clean, and cut to a number of tokens. Annotation and decoding both insert it so."""

from dataclasses import replace

from toolformer.calls import ApiCall
from toolformer.lm.language_model import LanguageModel


def with_result(language_model: LanguageModel, call: ApiCall, result: str, limit: int) -> ApiCall:
    """The call with as much of a result, cleaned, as has at most `limit` tokens after the arrow."""
    text = call.with_result(result).result or ""
    ids = language_model.encode_continuation(f" {text}")
    most = limit
    while len(ids) > limit:
        # Cut inside of a character, or into tokens that are encoded to more: shorter still.
        text = call.with_result(language_model.decode(ids[:most]).rstrip("\ufffd")).result or ""
        ids, most = language_model.encode_continuation(f" {text}"), most - 1
    return replace(call, result=text)
