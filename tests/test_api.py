"""The Python API refuses what would be read as something else."""

from pathlib import Path

import pytest

from toolformer import Toolformer
from toolformer.errors import UserError


def test_a_bare_text_is_no_list_of_texts(tiny_folder: Path) -> None:
    words = ["tools=[calculator]", "lm.dtype=float32", "lm.device=cpu"]
    toolformer = Toolformer.from_pretrained(tiny_folder, words)
    with pytest.raises(UserError, match=r"prompts is the text 'abc'; give a list .* \['abc'\]"):
        toolformer.complete("abc")
    with pytest.raises(UserError, match="stop is the text"):
        toolformer.complete(["abc"], stop="ab")
    with pytest.raises(UserError, match="overrides is the text"):
        Toolformer.from_pretrained(tiny_folder, "decoding.k=1")
    assert len(toolformer.complete(["abc"], max_new_tokens=1, stop=["ab"])) == 1
