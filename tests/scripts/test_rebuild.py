"""Texts with their calls, rebuilt from published rows."""

import pytest

from scripts.rebuild import CUT, rebuilt
from toolformer.errors import UserError

TEXT = "Nepal's capital is Kathmandu."
PASSAGES = ["Kathmandu > Kathmandu is a city.", "Nepal > Nepal is a state.", "Nepal > Nepal is high."]


def row(result: str) -> dict[str, object]:
    written = f'[WikiSearch("Nepal") -> {result}]'
    call = {
        "position": 18,
        "tool": "search",
        "input": "Nepal",
        "result": result,
        "gain": 1.0,
        "written": written,
    }
    return {"text": None, "calls": [call], "url": None, "date": None, "doc_id": "a"}


def test_a_text_and_a_whole_result_are_put_back() -> None:
    ((built,),) = rebuilt([row(f"Kathmandu > Kath{CUT}")], {"a": TEXT}, PASSAGES)
    assert built["text"] == (
        'Nepal\'s capital is [WikiSearch("Nepal") -> Kathmandu > Kathmandu is a city.] Kathmandu.'
    )


def test_every_passage_with_the_beginning_is_tried() -> None:
    found = [
        rows[0]["calls"][0]["result"]
        for rows in rebuilt([row(f"Nepal > Nepal is{CUT}")], {"a": TEXT}, PASSAGES)
    ]
    assert found == ["Nepal > Nepal is a state.", "Nepal > Nepal is high."]


@pytest.mark.parametrize(
    ("texts", "result", "message"),
    [
        ({}, "a", "1 of 1 texts are not in DATA: a"),
        ({"a": TEXT}, f"Lhasa{CUT}", "no passage in DATA/headline/index begins with 'Lhasa'"),
    ],
)
def test_what_is_missing_is_named(texts: dict[str, str], result: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        next(rebuilt([row(result)], texts, PASSAGES))
