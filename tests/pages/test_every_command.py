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
from tests.conftest import tiny_model, tiny_tokenizer
from tests.pages.page import ROOT, Documented, documented
from tests.processes import save_calling_model
from toolformer.cli import main
from toolformer.language_model import LanguageModel
from toolformer.tracking import Tracker

OF_THEIR_PAGES = ("quickstart.md", "tools.md", "extending.md")
"""The blocks of these pages are run in order by tests of their own."""
ELSEWHERE = {
    "make setup": ("tests/test_setup.py", "setup.sh"),
    "make demo": ("Makefile", "toolformer demo"),
    "make test": (".ci/run", "make test"),
    "bash .ci/run": (".ci/run", "make test"),
    "mlflow server": ("tests/tracking/conftest.py", '"mlflow", "server"'),
    "toolformer ui": ("tests/tracking/test_ui.py", "serve"),
    "hydra/launcher=joblib": ("tests/test_smoke.py", "hydra/launcher=joblib"),
    "hydra/launcher=submitit_local": ("tests/test_smoke.py", '"submitit_local"'),
    "hydra/launcher=ray": ("tests/test_smoke.py", '"ray"'),
    "engine=ray": ("tests/test_engine.py", '"engine=ray"'),
    "engine.workers=4": ("tests/test_engine.py", '"engine.workers=2"'),
    "index_path=my-lucene": ("tests/tools/test_lucene.py", "index_path"),
    "index.backend=lucene": ("tests/tools/test_index.py", "lucene"),
    "benchmarks.speed.language_id": ("tests/test_language_id.py", "speed.main("),
    "benchmarks.speed.viewer": ("tests/reporting/test_browser.py", "speed.main("),
    "toolformer tool search Ghana flag": ("tests/pages/test_quickstart.py", "def test_what_search_answers"),
}
"""Words of a command, what runs it, and words of that."""
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
        tokenizer = tiny_tokenizer()  # the textbook has no windows: a long context
        tiny_model("llama", len(tokenizer), context=8192).save_pretrained(folder / "long")
        tokenizer.save_pretrained(folder / "long")
        with served(LanguageModel.from_pretrained(str(folder / "model"), dtype="float32")) as server:
            one = Place(folder, server)
            one.write()
            # What many commands read: runs of the demo's systems.
            assert main(["demo", *one.small, "corpus.limit=4"]) == 0
            yield one


def way(command: Documented) -> tuple[str, str]:
    """Where a command is run and by which words, `here`, or nowhere, since it needs more."""
    if command.needs:
        return "needs", command.needs
    if command.page in OF_THEIR_PAGES and command.fenced:
        return (
            f"tests/pages/test_{command.page.removesuffix('.md')}.py",
            "test_every_command_of_the_page_runs",
        )
    text = " ".join(command.words)
    for words, place in ELSEWHERE.items():
        alone = words != "toolformer tool search Ghana flag" or text == words
        if alone and re.search(rf"(^|\s|\.){re.escape(words)}(\s|$)", text):
            return place
    return "here", ""


def test_what_is_not_run_here_is_run_elsewhere_or_says_what_it_needs() -> None:
    every = documented()
    ways = {way(one) for one in every}
    needs = {name for place, name in ways if place == "needs"}
    assert needs == {"the hub", "11 GB from the hub", "GPUs", "a cluster", "Atlas's weights"}
    for place, words in ways:
        if place not in ("here", "needs"):
            assert words in (ROOT / place).read_text(encoding="utf-8"), (place, words)
    assert sum(way(one)[0] == "here" for one in every) > 40


def test_every_other_command_runs(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the pages: a page's commands build on each other. What several pages have is run once."""
    failed: list[str] = []
    run: set[tuple[str, ...]] = set()
    for command in documented():
        alike = command.words[:1] if command.words[0].startswith("benchmarks.speed.") else command.words
        if way(command)[0] == "here" and alike not in run:
            run.add(alike)
            if said := fault(command, place, capsys):
                failed.append(f"{command}: {said}")
    assert not failed, "\n".join(failed)


def fault(command: Documented, place: Place, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command ends in, if not well."""
    if command.words[1] == "compare":
        # Two evaluations of the same questions, the newest there are.
        another = 21 + len(Tracker(None, Path("runs")).runs("evaluate"))
        given = ["system=model,toolformer", *place.small, f"evaluation.bootstrap={another}"]
        assert main(["evaluate", "-m", "experiment=demo", *given]) == 0
    program, words = command.words[0], place.words(command)
    asked = len(place.server.payloads)
    capsys.readouterr()
    try:
        if program.startswith("benchmarks.speed."):
            run_speed(program, words, place)
            return "" if json.loads(capsys.readouterr().out.splitlines()[-1]) else "no figures"
        expected = {1} if "exit code 1" in command.remark else {0}
        if words[0] == "tool" and any("endpoint" in word for word in words):
            expected = {0, 1}  # a tiny model may have no answer
            code = main(words)
            if len(place.server.payloads) == asked:
                return "the endpoint was not asked"
        elif "lm_eval" in command.words[:2]:
            # What the program `lm_eval` is, and when, is told by tests/test_lm_eval_command.py.
            arguments = [*(words if program == "lm_eval" else words[1:]), "--limit", "2"]
            code = main(
                ["lm_eval", *(str(ROOT / "benchmarks") if w == "benchmarks" else w for w in arguments)]
            )
        else:
            takes = words[0] in ("generate", "train", "evaluate", "run", "complete", "demo")
            fewer = ["corpus.limit=4"] if takes and words[0] != "complete" else []
            if "experiment=smoke" in words:
                fewer += ["system=toolformer", "benchmarks=[dateset]"]
            code = main([*words, *(place.small if takes and "--help" not in words else []), *fewer])
    except SystemExit as end:  # how Hydra ends its help
        code, expected = int(end.code or 0), {0}
    return "" if code in expected else f"exit code {code}: {capsys.readouterr().err[-500:]}"


def test_an_experiment_runs_in_the_papers_setting(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """conf/experiment/table7.yaml's first command."""
    texts = [f"{key}.path={place.folder}/cc_net/en_head_0000.json.gz" for key in ("corpus", "heldout")]
    words = ["run", "experiment=table7", *texts, f"paths.data_dir={place.folder}/data", *place.small]
    assert main(words) == 0, capsys.readouterr().err
    runs = Tracker(None, Path("runs")).runs("evaluate", experiment="paper")
    assert {run.tags["system"] for run in runs} == {"model", "model_cc", "toolformer_disabled", "toolformer"}
    assert all("templama/score" in run.metrics and "dateset/score" in run.metrics for run in runs)
    assert (place.folder / "runs" / "report" / "paper" / "report.md").is_file()


def run_speed(program: str, words: list[str], place: Place) -> None:
    """The script with the least that it can measure."""
    least = {
        "annotate": ["documents=1", "tools=calendar", "k=2", "m=1", "batch_tokens=256,2048"],
        "rounding": ["documents=2", "tools=calendar", "k=2", "m=1"],
        "decode": ["prompts=4", "batch=2", "new_tokens=4", "k=10"],
        "train": ["documents=8", "sequence_length=128"],
        "tools": ["calls=20", "batch=10", "tools=calculator,calendar"],
    }[program.rpartition(".")[2]]
    own = [word for word in words if word.partition("=")[0] not in {one.partition("=")[0] for one in least}]
    models = [f"model={place.folder}/long"] if not program.endswith("tools") else []
    own = [word for word in own if not word.startswith("model=")]
    importlib.import_module(program).main([*own, *least, *models])


def test_the_readmes_python_runs(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    given = '"experiment=demo"'
    assert given in block
    capsys.readouterr()
    exec(block.replace(given, ", ".join(map(repr, ["experiment=demo", *place.small]))), {})
    assert len(capsys.readouterr().out.splitlines()) >= 3
