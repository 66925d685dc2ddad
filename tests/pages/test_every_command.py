"""Every command of the documentation is run: here, by another test, or not, where it says that it needs more.

Here they run one after the other in one folder, with a tiny model, two texts and two questions of each benchmark; what is
said for that goes behind the command's own words.
"""

from __future__ import annotations

import gzip
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.completions_server import Completions, served
from tests.pages.page import ROOT, Documented, documented
from tests.processes import save_calling_model
from toolformer.cli import main
from toolformer.language_model import LanguageModel
from toolformer.tracking import Tracker

OF_THEIR_PAGES = ("quickstart.md", "tools.md", "extending.md")
"""These pages have tests of their own, which run their commands in order."""
ELSEWHERE = {
    "make setup": "tests/test_setup.py",
    "make demo": "Makefile",
    "make test": ".ci/run",
    "bash .ci/run": ".ci/run",
    "mlflow server": "tests/tracking/conftest.py",
    "ui": "tests/test_cli.py",
    "hydra/launcher=joblib": "tests/test_smoke.py",
    "hydra/launcher=submitit_local": "tests/test_smoke.py",
    "hydra/launcher=ray": "tests/test_smoke.py",
    "engine=ray": "tests/test_engine.py",
    "engine.workers=4": "tests/test_engine.py",
    "index_path=my-lucene": "tests/tools/test_lucene.py",
    "index.backend=lucene": "tests/tools/test_lucene.py",
    "benchmarks.speed.language_id": "tests/test_language_id.py",
}
"""Words of a command, and what runs it."""
TEXTS = [f"On day {n} we met in the old town, and on day {n + 1} we met again." for n in range(4)]
ROWS: dict[str, list[dict[str, Any]]] = {
    "lama/squad": [{"id": f"s{n}", "obj_label": "day", "masked_sentences": [f"Hill {n} is in the [MASK]."]} for n in range(3)],
    "lama/trex": [
        {"relation": "P19", "template": "[X] was born in [Y] .", "uuid": f"u{n}", "sub_label": f"Ada {n}", "obj_label": "day"}
        for n in range(3)
    ],
    "svamp/svamp": [{"id": f"v{n}", "body": f"On day {n} we met.", "question": "How many?", "answer": 3.0} for n in range(3)],
    "mawps/mawps_full": [{"id": n, "question": f"{n} and 1 day?", "solutions": [n + 1.0]} for n in range(3)],
    **{
        name: [{"id": f"q{n}", "question": f"what day {n}", "answers": ["day"]} for n in range(3)]
        for name in ("webquestions/test", "nq_open/dev", "triviaqa/unfiltered_dev")
    },
    **{
        f"xquad/{language}": [
            {"id": f"x{n}", "context": "We met on day 3.", "question": "day?", "answers": [{"text": "day", "answer_start": 10}]}
            for n in range(3)
        ]
        for language in ("en", "es", "de", "hi", "vi", "zh", "ar")
    },
    "asdiv/asdiv": [{"id": f"a{n}", "body": "Two and 7.", "question": "How many?", "answer": "9 (apples)"} for n in range(3)],
}  # fmt: skip


class Place:
    """The folder that the commands run in, and what their words stand for there."""

    def __init__(self, folder: Path, server: Completions) -> None:
        self.folder, self.server = folder, server
        self.model = folder / "model"
        self.small = [
            f"model={self.model}", "lm.dtype=float32", "engine.threads=1", "tools=[calendar]", "propose.force_name=true",
            "tool.calendar.filter_threshold=-100", "tool.calendar.max_call_tokens=8", "decoding.max_call_tokens=16",
            "trainer.sequence_length=128", "trainer.batch_size=2", "trainer.micro_batch_size=1", "trainer.max_steps=2",
            "trainer.eval_every=2", "evaluation.limit=2", "evaluation.perplexity_limit=2", "evaluation.bootstrap=20",
        ]  # fmt: skip

    def write(self) -> None:
        for name, rows in ROWS.items():
            path = self.folder / "data" / f"{name}.jsonl.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(path, "wt", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        queries = [
            {
                "query": f"Ada {n} plays for _X_.",
                "answer": [{"wikidata_id": "Q1", "name": "day"}],
                "date": "2014",
            }
            | {"id": f"Q{n}_P54_2014", "relation": "P54"}
            for n in range(3)
        ]
        (self.folder / "data" / "templama").mkdir()
        published = self.folder / "data" / "templama" / "test.json"
        published.write_text("".join(json.dumps(row) + "\n" for row in queries))
        titled = [{"id": str(n), "title": "Flag of Ghana", "text": text} for n, text in enumerate(TEXTS)]
        (self.folder / "articles.jsonl").write_text("".join(json.dumps(row) + "\n" for row in titled))
        pages = {"content": TEXTS, "published": ["2020-08-14"] * len(TEXTS)}
        pq.write_table(pa.table(pages), self.folder / "pages.parquet")
        (self.folder / "cc_net").mkdir()
        with gzip.open(self.folder / "cc_net" / "en_head_0000.json.gz", "wt") as file:
            for number, text in enumerate(TEXTS):
                fields = {
                    "url": f"https://example.org/2020/08/14/{number}",
                    "raw_content": text,
                    "language": "en",
                }
                file.write(json.dumps({**fields, "date_download": "2020-08-15T00:00:00Z"}) + "\n")

    def words(self, command: Documented) -> list[str]:
        """The command's words after the program, as they are given here."""
        stands_for = {
            "/data/cc_net": str(self.folder / "cc_net"),
            "http://127.0.0.1:8000": self.server.url.removesuffix("/v1/completions"),
            "http://tracking.example.org:5000": f"sqlite:///{self.folder}/other.db",
            '"data_dir": "data"': f'"data_dir": "{self.folder}/data"',
            "=DIR": f"={self.folder}/data",
            "=FILE": f"={self.folder}/articles.jsonl",
            "=FOLDER": f"={self.model}",
            "=NAME": "=tiny",
        }
        words = []
        for word in command.words[1:]:
            for name, here in stands_for.items():
                word = word.replace(name, here)
            words.append(word)
        ids = iter(run.run_id[:8] for run in Tracker(None, Path("runs")).runs("evaluate"))
        return [next(ids) if re.fullmatch(r"[0-9a-f]{8}", word) else word for word in words]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("commands")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TOOLFORMER_RUNS", "runs")
        patch.delenv("OPENAI_API_KEY", raising=False)
        save_calling_model(folder / "model")
        with served(LanguageModel.from_pretrained(str(folder / "model"), dtype="float32")) as server:
            one = Place(folder, server)
            one.write()
            # What many commands read: runs of the demo's systems.
            assert main(["demo", *one.small, "corpus.limit=4"]) == 0
            yield one


def way(command: Documented) -> str:
    """Where a command is run: `here`, a file, or nowhere, since it needs more."""
    if command.needs:
        return f"needs {command.needs}"
    if command.page in OF_THEIR_PAGES:
        return f"tests/pages/test_{command.page.removesuffix('.md')}.py"
    text = " ".join(command.words)
    found = [
        file for words, file in ELSEWHERE.items() if re.search(rf"(^|\s|\.){re.escape(words)}(\s|$)", text)
    ]
    return found[0] if found else "here"


ALL = documented()
HERE = [one for one in ALL if way(one) == "here"]


def test_what_is_not_run_here_is_run_elsewhere_or_says_what_it_needs() -> None:
    ways = {way(one) for one in ALL} - {"here"}
    needs = {one.removeprefix("needs ") for one in ways if one.startswith("needs ")}
    assert needs <= {"the hub", "11 GB from the hub", "GPUs", "a cluster"}
    for file in ways - {f"needs {one}" for one in needs}:
        assert (ROOT / file).is_file(), file
    assert len(HERE) > 40


@pytest.mark.parametrize("command", HERE, ids=str)
def test_it_runs(command: Documented, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    program, words = command.words[0], place.words(command)
    asked = len(place.server.payloads)
    if program.startswith("benchmarks.speed."):
        run_speed(program, words, place)
        assert json.loads(capsys.readouterr().out.splitlines()[-1])
    elif program == "lm_eval" or words[0] == "lm_eval":
        # What the program `lm_eval` is, and when, is told by tests/test_lm_eval_command.py.
        arguments = [*(words if program == "lm_eval" else words[1:]), "--limit", "2"]
        arguments = [str(ROOT / "benchmarks") if word == "benchmarks" else word for word in arguments]
        assert main(["lm_eval", *arguments]) == 0, capsys.readouterr().err
    elif words[0] == "tool":
        code = main(words)
        if any("endpoint" in word for word in words):
            assert code in (0, 1) and len(place.server.payloads) > asked, "a tiny model may have no answer"
        else:
            assert code == 0
    else:
        takes = (
            words[0] in ("generate", "train", "evaluate", "run", "complete", "demo") and "--help" not in words
        )
        fewer = ["corpus.limit=4"] if takes and words[0] != "complete" else []
        assert main([*words, *(place.small if takes else []), *fewer]) == 0, capsys.readouterr().err


def test_an_experiment_runs_in_the_papers_setting(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """conf/experiment/table7.yaml's first command."""
    texts = [f"{key}.path={place.folder}/cc_net/en_head_0000.json.gz" for key in ("corpus", "heldout")]
    words = ["run", "experiment=table7", *texts, f"paths.data_dir={place.folder}/data", *place.small]
    assert main(words) == 0, capsys.readouterr().err
    tracker = Tracker(None, Path("runs"))
    systems = {run.tags["system"] for run in tracker.runs("evaluate", experiment="paper")}
    assert systems == {"model", "model_cc", "toolformer_disabled", "toolformer"}
    report = (place.folder / "runs" / "report" / "table7" / "report.md").read_text(encoding="utf-8")
    assert "TempLAMA" in report


def run_speed(program: str, words: list[str], place: Place) -> None:
    """The script with the least that it can measure."""
    least = {
        "annotate": ["documents=1", "tools=calendar", "k=2", "m=1"],
        "decode": ["prompts=4", "batch=2", "new_tokens=4", "k=10"],
        "train": ["documents=8", "sequence_length=128"],
        "tools": ["calls=20", "batch=10", "tools=calculator,calendar"],
    }[program.rpartition(".")[2]]
    own = [word for word in words if word.partition("=")[0] not in {one.partition("=")[0] for one in least}]
    models = [f"model={place.model}"] if not program.endswith("tools") else []
    own = [word for word in own if not word.startswith("model=")]
    importlib.import_module(program).main([*own, *least, *models])
