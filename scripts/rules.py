"""What rules without learned calls would answer, as baselines of the registered experiments (of the first exploratory: not registered).

    python scripts/rules.py DATA [EXPERIMENT]

*Calculator after the first expression*: an answer that was written without calls, up to its first "expression =", followed by
what the calculator returns for the expression. *The question as the query*: the question is searched as it is, and the
question-answering tool's reader answers from the best passage.

Writes docs/results/rules.json, of another experiment than headline EXPERIMENT_rules.json: for every rule, benchmark and seed the ids that are right, and for questions the answers.
DATA is prepared as for the experiment (conf/setting/headline.yaml), since most questions may not be redistributed.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import answers, headline
from toolformer.benchmarks.tasks import answer_in_5_words, answer_in_20_words, math_score
from toolformer.errors import UserError
from toolformer.storage import atomic_write
from toolformer.tools.calculator import calculate

Row = Mapping[str, Any]

SUMS = ("arithmetic", "mawps", "svamp")
QUESTIONS = {"nq": answer_in_20_words, "lama_trex": answer_in_5_words}
QUERIES = {
    "headline": {
        "question as query": "index.bm25",
        "question as query, index without": "without.bm25",
    },
    "positions": {"question as query": "without.bm25"},
}
"""By experiment the rules for questions, with their index in DATA/headline: `without` the passages that were chosen for benchmarks."""
_NUMBER = r"[-−]?[$€£]?\d[\d,]*(?:\.\d+)?%?"
_EXPRESSION = re.compile(rf"[(\s]*{_NUMBER}[)\s]*(?:[-−+*/×÷x][(\s]*{_NUMBER}[)\s]*)+(?==)")


def calculated(answer: str) -> str:
    """The answer up to its first "expression =", and the expression's value; as it is if it has none that can be computed.

    >>> calculated(" 12 + 30 = 52 apples"), calculated(" 7 apples")
    (' 12 + 30 = 42', ' 7 apples')
    """
    found = _EXPRESSION.search(answer)
    try:
        return f"{answer[: found.end()]}= {calculate(found[0])}" if found else answer
    except ValueError:
        return answer


def main(data: Path, experiment: str = "headline") -> None:
    """Computes every rule's answers and writes those that are right."""
    published = answers.Answers(answers.EXPERIMENTS[experiment].folder, experiment)
    documents = {
        task: {str(row["id"]): row for row in rows}
        for task, rows in headline.questions(data, [*SUMS, *QUESTIONS]).items()
    }
    right: dict[str, Any] = {}
    for name in ("M", "M + CC", "disabled"):
        for task in (task for task in SUMS if published.has(name, task)):
            for seeds, rows in published.by_seed(name, task).items():
                ids = [
                    str(row["id"])
                    for row in rows
                    if math_score(documents[task][str(row["id"])], [calculated(row["prediction"])])["score"]
                ]
                right.setdefault(f"{name} + rule", {}).setdefault(task, {})[str(seeds[0])] = sorted(ids)
    for rule, folder in QUERIES[experiment].items():
        reader = _reader(data / "headline" / folder)
        for task in (task for task in QUESTIONS if published.has("disabled", task)):
            asked = [str(row["id"]) for _, rows in published.of("disabled", task)[:1] for row in rows]
            given = _asked(reader, [documents[task][identity] for identity in asked])
            ids = [
                identity
                for identity, answer in zip(asked, given, strict=True)
                if QUESTIONS[task](documents[task][identity], [f" {answer}"])["score"]
            ]
            right.setdefault(rule, {})[task] = {"0": sorted(ids)}
    path = answers.EXPERIMENTS[experiment].rules[0]
    atomic_write(path, (json.dumps(right, indent=0, sort_keys=True) + "\n").encode())
    print(path)


def _reader(index: Path) -> Any:
    """The experiment's question-answering tool over an index."""
    from toolformer.jobs import instantiate
    from toolformer.jobs.config import compose, validate

    place = f"tool.qa.implementation.retriever.index_path={index}"
    config = validate(
        compose(
            "evaluate",
            ["experiment=headline_effect", "tools=[qa]", f"paths.data_dir={index.parent.parent}", place],
        )
    )
    return instantiate.tools(config)["qa"]


def _asked(reader: Any, documents: Sequence[Row]) -> list[str]:
    from toolformer.data import Document

    texts = [str(row.get("question") or row["text"]) for row in documents]
    results = reader.run(
        texts, [Document(str(row["id"]), text) for row, text in zip(documents, texts, strict=True)]
    )
    return [result.text or "" for result in results]


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3 or sys.argv[2:] and sys.argv[2] not in QUERIES:
        print(f"python scripts/rules.py DATA [{'|'.join(QUERIES)}]", file=sys.stderr)
        sys.exit(2)
    try:
        main(Path(sys.argv[1]), *sys.argv[2:])
    except (OSError, UserError) as error:
        print(f"rules: {error}", file=sys.stderr)
        sys.exit(2)
