"""lm-eval's published tasks give the same numbers through our model class as through its `hf` class.

The tasks are lm-eval's files word for word; only their rows are made up here, in the published layout.
"""

from pathlib import Path
from typing import Any

import lm_eval
import pytest
from lm_eval.api.model import LM
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from tests.build import ARC_QUESTIONS, bos_tokenizer, published_task, tiny_model
from toolformer.decoding.decoder import Decoder
from toolformer.decoding.lm_eval_model import ToolformerLM
from toolformer.lm.language_model import LanguageModel

WIKITEXT = [
    " \n = Stone Bridge = \n \n The bridge , built in 1843 , crosses the river @-@ side road . It is 1 @,@ 200 feet "
    "long . \n \n = = History = = \n \n A first bridge of wood fell in a flood ; nobody was hurt . \n",
    " \n = Marsh Warbler = \n \n The marsh warbler is a small bird that sings at night . \n" * 12,
]
PASSAGES = [
    "She put the kettle on and waited for the water to boil, and then she poured the water",
    "The number in the next term is 18, and the number after that is the number",
]


@pytest.fixture
def tasks(tmp_path: Path) -> Any:
    configs = [
        published_task(tmp_path, "wikitext/wikitext.yaml", [{"page": text} for text in WIKITEXT]),
        published_task(tmp_path, "arc/arc_easy.yaml", ARC_QUESTIONS),
        published_task(tmp_path, "lambada/lambada_openai.yaml", [{"text": text} for text in PASSAGES]),
    ]
    return lambda: TaskManager(include_defaults=False).load(configs)


def measured(lm: LM, tasks: Any) -> dict[str, float]:
    results = lm_eval.evaluate(lm, tasks(), bootstrap_iters=0)
    assert results is not None
    return {
        f"{task} {metric}": value
        for task, metrics in results["results"].items()
        for metric, value in metrics.items()
        if isinstance(value, float) and "stderr" not in metric
    }


def check(language_model: LanguageModel, tasks: Any) -> dict[str, float]:
    reference = HFLM(
        pretrained=language_model.model, tokenizer=language_model.tokenizer, batch_size=1,
        max_length=language_model.context_length,
    )  # fmt: skip
    theirs = measured(reference, tasks)
    ours = measured(ToolformerLM(Decoder(language_model, mode="plain"), progress=False), tasks)
    assert ours == pytest.approx(theirs, rel=2e-4)
    expected = ("wikitext word_perplexity", "arc_easy acc_norm", "lambada_openai perplexity")
    assert {f"{name},none" for name in expected} <= set(ours)
    return ours


def test_published_tasks_with_a_tiny_model(tiny_gpt2: LanguageModel, tasks: Any) -> None:
    check(tiny_gpt2, tasks)


@pytest.mark.parametrize(("architecture", "times"), [("llama", 1), ("gemma3", 2)])
def test_published_tasks_with_a_tokenizer_that_adds_bos(tasks: Any, architecture: str, times: int) -> None:
    """lm-eval counts its BOS as a text's first token."""
    tokenizer = bos_tokenizer(times)
    language_model = LanguageModel(tiny_model(architecture, len(tokenizer)), tokenizer)
    assert language_model.bos_ids == [tokenizer.bos_token_id] * times
    check(language_model, tasks)


@pytest.mark.real
def test_published_tasks_with_the_embedded_model(tasks: Any) -> None:
    found = check(LanguageModel.from_pretrained("smollm2", dtype="float32"), tasks)
    assert found["wikitext word_perplexity,none"] < 1000 and found["arc_easy acc,none"] > 0
