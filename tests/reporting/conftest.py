"""Small runs of every stage, in folders."""

import pytest

from tests.runs import (
    EXECUTED,
    Runs,
    accuracy,
    annotated,
    answered,
    evaluated,
    perplexity,
    trained,
    write_annotation,
)
from toolformer.reporting import Report, build, reader
from toolformer.reporting.data import Evidence


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of all stages; ASDiv, MAWPS and the whole of M + CC on math are missing."""
    runs, root = Runs(), tmp_path_factory.mktemp("runs")
    skipped = {"rows_skipped": 4.0, "rows_skipped/malformed JSON": 3.0, "rows_skipped/empty text": 1.0}
    thresholds = {"calculator": 1.0, "qa": 1.0}
    files = write_annotation(root)
    dataset = annotated(runs, skipped | EXECUTED, files, thresholds, device_name="A Processor")
    curves = {
        "loss": [(1, 3.0), (2, 2.5), (3, 2.25)],
        "perplexity_texts": [(1, 19.0), (2, 18.0), (3, 17.0)],
        "perplexity_results": [(1, 9.0), (2, 8.0), (3, 7.0)],
        "heldout_perplexity": [(0, 50.0), (3, 40.0)],
    }
    augmented, plain = (trained(runs, data, dataset, curves=curves) for data in ("augmented", "plain"))
    wrong, right = [0.0] * 40, [0.0] * 25 + [100.0] * 15
    shares = {"calculator": 0.5, "qa": 0.25}
    texts = {value: perplexity("wikitext_perplexity", value) for value in (20.5, 21.25)}
    answered(runs, root, "model", [100.0] * 40)  # an older one
    answered(runs, root, "model", wrong, metrics=accuracy("dateset", 3.0, n=9400) | texts[20.5])
    evaluated(runs, "model_cc", accuracy("dateset", 2.5, n=500) | texts[21.25], plain)
    disabled = accuracy("dateset", 2.0, n=500) | texts[20.5]
    answered(runs, root, "toolformer_disabled", [100.0, *wrong[1:]], augmented, metrics=disabled)
    called = accuracy("dateset", 40.0, n=500, **shares)
    answered(runs, root, "toolformer", right, augmented, metrics=called)
    # A sweep over k must not replace the plain one.
    answered(runs, root, "toolformer", wrong, augmented, k=0)
    answered(runs, root, "toolformer", right[:30] + wrong[:10], augmented, k=1)
    answered(runs, root, "toolformer", [100.0] * 40, model="EleutherAI/gpt-j-6B")
    answered(runs, root, "baseline", [100.0] * 40, model="large", baseline="large")
    answered(runs, root, "toolformer", [100.0] * 40, experiment="other")
    return runs


@pytest.fixture(scope="session")
def report(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build(runs, "default", tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def evidence(runs: Runs) -> Evidence:
    return reader.read_evidence(runs, "default")
