"""What tests of scripts share: a small registered experiment with made-up answers, and a data folder of a few rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts import publish
from tests.build import SVAMP
from tests.build import write as write_rows
from tests.runs import Runs, scored, without_calls, write, write_annotation
from toolformer.benchmarks.data_folder.table import FILES
from toolformer.step import Step

Row = dict[str, Any]

LONG = "the miller counts every sack of grain twice before his brother closes the door"
BRIDGE = "The river below the old stone bridge is called Wensley by all."
PAGE: Row = {"url": None, "date": "2019-06-03", "title": None, "language": "en"}
PAGES = {
    "web": "We met. It was Monday when the rain came. Then we left.",
    "sunday": "It was Sunday.",
    "german": "Es war Monday.",
    "words": f"It was Monday when {LONG}.",
    "numbers": "It was Monday and 1,234 of 5678 came.",
    "number": "It was Monday and 1234 came.",
}
ROWS: dict[str, list[Row]] = {
    "web_documents": [
        {**PAGE, "id": name, "text": text, "language": "de" if name == "german" else "en"}
        for name, text in PAGES.items()
    ],
    "web_excerpts": [{"id": n, "prefix": f"Page {n} ", "continuation": "ends."} for n in range(60)],
    "squad_train": [{"title": "Old_bridge", "context": f"It is old. {BRIDGE}"}],
    "2wiki_passages": [{"title": "River", "text": "Boats pass below the stone bridge on the Wensley."}],
    "trex_evidences": [
        {"evidences": [{"sub_surface": "A", "obj_surface": "Rome", "masked_sentence": "A is in [MASK]."}]}
    ],
    "nq_passages": [{"passages": [{"title": "B", "text": "B is a town."}]}],
    "wikipedia_articles": [{"text": "C\n\nC is a hill."}],
    "svamp": [{**SVAMP, "id": str(n), "body": f"Ann has {n + 2} pens."} for n in range(4)]
    + [{**SVAMP, "id": "4", "body": f"So {LONG}."}, {**SVAMP, "id": "5", "body": "Of 1234 pens 5,678 go."}],
}
"""By name of the file in a data folder."""


def fill(folder: Path, *names: str) -> None:
    for name in names:
        write_rows(folder, FILES[name].paths[0].removesuffix(".jsonl.gz"), ROWS[name])


class Experiment:
    """Runs as those of the registered experiment, with made-up answers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, Runs()
        self.files = write_annotation(folder) | without_calls(folder)

    def arm(
        self,
        system: str,
        scores: Sequence[Sequence[float]],
        task: str = "mawps",
        wording: str = "paper",
        index: str = "",
        sampled_by: int = 0,
        filtered: Mapping[str, Any] | None = None,
        first: int = 0,
    ) -> None:
        """The evaluations of an arm, one per seed, from the first one on."""
        annotate = Step("annotate", 1, {"seed": sampled_by} if sampled_by else {})
        for seed, of_seed in enumerate(scores, first):
            number = next(self.runs.numbers)
            made = ["Calculator"] if system == "toolformer" else []
            results = ["0", "1", "-2", *map(str, range(3, len(of_seed)))]
            rows = [
                scored(
                    n, float(score), completion=" 5", tools=made, call_result=result if made and n else None
                )
                | {"target": [result], "prediction": f" {n}"}
                for n, (score, result) in enumerate(zip(of_seed, results, strict=False))
            ]
            path = write(self.folder / str(number) / f"{task}.parquet", rows)
            training = None
            if system.startswith("toolformer"):
                training = self.training(seed, annotate, filtered or {})
            answer = Step(
                "answer", 1, {"system": system, "index": index}, {"training": training} if training else {}
            )
            self.runs.add(
                "evaluate",
                {f"{task}/score": sum(of_seed) / len(of_seed), "seconds": 90.0},
                {f"samples/{task}.parquet": path},
                {"seed": seed, "tool": {"search": {"inference": {"retriever": {"index_path": index}}}}},
                settings={"number": number},
                inputs={"answers": answer},
                experiment="headline",
                system=system,
                wording=wording,
            )  # fmt: skip

    def training(self, seed: int, annotate: Step, filtered: Mapping[str, Any]) -> Step:
        generate = self.runs.add(
            "generate",
            {"annotation_seconds": 1800.0},
            self.files,
            settings={"tool": {"calculator": {}}, "filter": filtered},
            inputs={"annotation": annotate},
        )
        train = self.runs.add(
            "train",
            {"training_seconds": 240.0},
            config={"seed": seed},
            settings={"seed": seed},
            made_from=generate,
        )
        return train.step

    def published(self) -> Path:
        publish.main(self.runs.root, "headline", self.folder / "published")
        return self.folder / "published"
