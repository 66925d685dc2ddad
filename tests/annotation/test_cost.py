"""The cost formula, and the tables of docs/scaling.md that follow from it."""

import re
from pathlib import Path

import pytest

from toolformer.annotation import cost
from toolformer.jobs import instantiate
from toolformer.jobs.config import compose, validate
from toolformer.lm.loading import PARAMETERS
from toolformer.reporting.paper import EXAMPLES_KEPT

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
NAMES = {"question answering": "qa"}


def test_the_page_has_the_formulas_numbers() -> None:
    config = validate(compose("generate", ["setting=paper", "toolset=bundled", "corpus.path=DIR"]))
    rows = re.findall(
        r"^\| ([a-z ]+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$",
        PAGE.read_text(),
        re.M,
    )
    assert [name for name, *_ in rows] == [
        "question answering",
        "search",
        "calculator",
        "calendar",
        "translation",
    ]
    rate = cost.rate("NVIDIA A100-SXM4-80GB")
    assert rate
    for name, *numbers in rows:
        key = NAMES.get(name, name)
        examples, tokens, seconds, *hours = (float(number.replace(",", "")) for number in numbers)
        kept = EXAMPLES_KEPT[key][0 if key in ("calculator", "translation") else 1]
        computed = cost.tokens_per_text(instantiate.tool_settings(config, key), 500)
        each = cost.operations(PARAMETERS["EleutherAI/gpt-j-6b"], computed) / rate
        assert (examples, tokens) == (kept, computed) and seconds == pytest.approx(each, abs=0.05)
        for share, figure in zip((0.1, 0.01, 0.004), hours, strict=True):
            assert figure == pytest.approx(kept / share * each / 3600, rel=0.02), (name, share)


@pytest.mark.parametrize(
    ("device", "peak"),
    [("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12), ("NVIDIA L40S", 362e12), ("NVIDIA L40", None), ("A Processor", None)],
)  # fmt: skip
def test_a_gpu_is_known_by_its_name(device: str, peak: float | None) -> None:
    assert cost.rate(device) == (peak and cost.UTILISATION * peak)
