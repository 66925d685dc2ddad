"""A data folder, fetched from a server that plays the hub and the public addresses, with rows in their published layouts."""

import gzip
import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts import headline
from tests.benchmarks.build import documents
from tests.build import Capture, Log, Patch
from tests.servers.hub import HubServer, serving
from toolformer.benchmarks import MLQA_LANGUAGES, TASKS
from toolformer.benchmarks.data_folder import fetch as fetching
from toolformer.benchmarks.data_folder.fetch import describe, fetch
from toolformer.benchmarks.data_folder.files import Address, DataFile, Hub
from toolformer.benchmarks.data_folder.table import FILES, HEADLINE_TEXTS, files_named
from toolformer.benchmarks.declared import data_files
from toolformer.benchmarks.loaders.sources import rows_of
from toolformer.cli import main
from toolformer.errors import UserError
from toolformer.jobs.config import compose, validate

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]

FACT = {
    "uuid": "u1", "sub_uri": "Q1", "sub_label": "Ada Bell", "obj_uri": "Q2", "obj_label": "Ulm", "predicate_id": "P19",
    "sub_surface": "Bell", "obj_surface": "Ulm", "masked_sentence": "Bell is from [MASK].", "label": "place of birth",
    "template": "[X] was born in [Y] .", "template_negated": "", "description": "", "type": "N-1",
}  # fmt: skip
PERSON = {
    "pred": "/people/person/place_of_birth", "sub": "/m/1", "obj": "/m/2", "evidences": "[]", "judgments": "[]", "uuid": "u1",
    "sub_label": "Ada Bell", "sub_w": "", "sub_aliases": "[]", "obj_label": "Ulm", "obj_w": "", "obj_aliases": "[]",
    "masked_sentence": "Bell is from [MASK].",
}  # fmt: skip
ALIASES = {
    "value": "Ulm", "aliases": ["Ulm", "Ulm, Germany"], "normalized_aliases": ["ulm"], "normalized_value": "ulm", "type": "FreeForm",
    "matched_wiki_entity_name": "", "normalized_matched_wiki_entity_name": "",
}  # fmt: skip
PLAYER = {
    "query": "Ada Bell plays for _X_.", "answer": [{"wikidata_id": "Q3", "name": "FC Ulm"}], "date": "2014",
    "id": "Q7_P54_2014", "relation": "P54",
}  # fmt: skip
PASSAGE = {
    "id": "p1", "title": "Ulm", "context": "Ulm is old.", "question": "How?", "answers": {"answer_start": [7], "text": ["old"]}
}  # fmt: skip
ANSWER = {"answer_start": 7, "text": "old"}
TITLED = {"title": "Ulm", "text": "Ulm is old."}
NEWS = {"title": "Rain", "text": "It was Friday.", "domain": "d.org", "date": "2017-02-03 00:00:00", "description": "", "url": "https://d.org/1", "image_url": ""}  # fmt: skip
CONTEXT = {
    "id": None,
    "title": "Ulm",
    "text": "Ulm is old.",
    "score": None,
    "hasanswer": True,
    "isgold": True,
}
GOLD = {
    "title": "Ulm",
    "long_answer": "Ulm is old.",
    "chunked_long_answer": "Ulm is old.",
    "short_answers": ["old"],
}

HUB: dict[str, tuple[list[Row], list[Row]]] = {
    "svamp": (
        [{"ID": f"chal-{n}", "Body": "Two.", "Question": "Sum?", "Equation": "( 1 + 2 )", "Answer": "3.0", "Type": "Addition"} for n in (1, 2)],
        [{"id": f"chal-{n}", "body": "Two.", "question": "Sum?", "equation": "( 1 + 2 )", "answer": 3.0, "type": "Addition"} for n in (1, 2)],
    ),
    "asdiv": (
        [{"body": "Two.", "question": "Sum?", "solution_type": "Addition", "answer": "9 (apples)", "formula": "2+7=9"}],
        [{"body": "Two.", "question": "Sum?", "solution_type": "Addition", "answer": "9 (apples)", "formula": "2+7=9"}],
    ),
    "webqs": (
        [{"url": "http://w/1", "question": "where?", "answers": ["Ulm", "Bonn"]}],
        [{"question": "where?", "answers": ["Ulm", "Bonn"]}],
    ),
    "nq": ([{"question": "where", "answer": ["Ulm"]}], [{"question": "where", "answers": ["Ulm"]}]),
    "triviaqa": (
        [{"question": "Where?", "question_id": "tc_1", "question_source": "", "answer": ALIASES}],
        [{"id": "tc_1", "question": "Where?", "answers": ["Ulm", "Ulm, Germany", "ulm"]}],
    ),
    "lama_squad": (
        [{"id": "s_0", "sub_label": "Squad", "obj_label": "blue", "negated": "", "masked_sentence": "The sea is [MASK]."}],
        [{"id": "s_0", "sub_label": "Squad", "obj_label": "blue", "negated": "", "masked_sentences": ["The sea is [MASK]."]}],
    ),
    "lama_google_re": (
        [PERSON, {**PERSON, "masked_sentence": "Of [MASK] is Bell."}],
        [{name: value for name, value in PERSON.items() if name != "masked_sentence"}],
    ),
    "lama_trex": (
        [FACT, FACT, {**FACT, "masked_sentence": "Her town is [MASK]."}, {**FACT, "uuid": "u2", "predicate_id": "P17"}],
        [
            {"relation": relation, "uuid": uuid, "sub_uri": "Q1", "sub_label": "Ada Bell", "obj_uri": "Q2", "obj_label": "Ulm",
             "label": "place of birth", "relation_label": "place of birth", "template": "[X] was born in [Y] .",
             "template_negated": "", "description": "", "type": "N-1"}
            for relation, uuid in (("P19", "u1"), ("P17", "u2"))
        ],
    ),
    "trex_evidences": (
        [],  # those of lama_trex: a sentence once, and no relation that the measured index lacks
        [{"relation": "P19", "uuid": "u1", "evidences": [
            {"sub_surface": "Bell", "obj_surface": "Ulm", "masked_sentence": sentence}
            for sentence in ("Bell is from [MASK].", "Her town is [MASK].")
        ]}],
    ),
    "wikitext_perplexity": (
        [{"text": text} for text in ("", " = Ulm = \n", "", " Old . \n", "", " = Bonn = \n", "", " New . \n")],
        [{"article": 0, "text": "\n = Ulm = \n\n Old . \n\n"}, {"article": 1, "text": " = Bonn = \n\n New . \n"}],
    ),
    **{f"mlqa_{language}": (
        [PASSAGE, {**PASSAGE, "id": "p2"}],
        [{"id": name, "context": "Ulm is old.", "question": "How?", "answers": [ANSWER]} for name in ("p1", "p2")],
    ) for language in ("en", *MLQA_LANGUAGES)},
    **{f"xquad_{language}": (
        [{name: value for name, value in PASSAGE.items() if name != "title"}],
        [{"id": "p1", "context": "Ulm is old.", "question": "How?", "answers": [ANSWER]}],
    ) for language in ("en", *MLQA_LANGUAGES)},
    "web_documents": (
        [NEWS, {**NEWS, "date": "2017-02-30"}],
        [{"id": f"cc_news/{n}", "text": "It was Friday.", "url": "https://d.org/1", "date": day, "title": "Rain", "language": "en"}
         for n, day in enumerate(("2017-02-03", None))],
    ),
    "web_excerpts": (
        [{"text": "It rains.", "timestamp": "2019-04-25T12:57:54Z", "url": "https://d.org/2"}],
        [{"id": "c4/0", "prefix": "It rains.", "continuation": ""}],
    ),
    "wikipedia_articles": (
        [{"id": "1", "url": "https://w/Ulm", "title": "Ulm", "text": "Ulm is old."}],
        [{"id": "wikipedia/0", "text": "Ulm\n\nUlm is old."}],
    ),
}  # fmt: skip
"""Files of the hub: rows as published there, and in the data folder."""
ADDRESSES: dict[str, tuple[bytes, list[Row]]] = {
    "templama": (json.dumps(PLAYER).encode() + b"\n", [PLAYER]),
    "mawps": (
        json.dumps([{"iIndex": 3238, "sQuestion": " 7 and 2? ", "lEquations": ["x=7+2"], "lSolutions": [9.0]}]).encode(),
        [{"id": 1, "orig_index": 3238, "question": " 7 and 2? ", "equations": ["x=7+2"], "solutions": [9.0]}],
    ),
    "squad_train": (
        json.dumps({"data": [{"title": "Old_bridge", "paragraphs": [
            {"context": "It is old.", "qas": [{"id": "5", "question": "How?", "answers": [ANSWER]}]}]}], "version": "1.1"}).encode(),
        [{"title": "Old_bridge", "context": "It is old."}],
    ),
    "2wiki_passages": (
        json.dumps([TITLED]).encode(),
        [{"id": "2wiki/0", **TITLED}],
    ),
    "nq_passages": (
        gzip.compress(json.dumps({"question": "how", "answers": ["old"], "ctxs": [CONTEXT], "nq_annotated_gold": GOLD}).encode()),
        [{"id": "nq-oracle-0", "question": "how", "answers": ["old"], "passages": [{"title": "Ulm", "text": "Ulm is old."}]}],
    ),
}  # fmt: skip
"""Files at public addresses: as published, and their rows in the data folder."""

GET = """
import json, sys
from dataclasses import replace
from toolformer.benchmarks.data_folder.files import Hub
from toolformer.benchmarks.data_folder.table import FILES
from toolformer.cli import main
for name, change in json.loads(sys.argv[1]).items():
    file, url = FILES[name], change.get("url")
    source = file.source
    if url:
        pin = getattr(source, "pin", None)
        source = Hub({**pin, "data_files": {"test": url}}) if pin else replace(source, url=url, sha256=change["sha256"])
    FILES[name] = replace(file, rows=change["rows"], source=source)
sys.exit(main(["data", "get", *FILES, sys.argv[2]]))
"""
"""The command, with as many rows as these sources have, and the server's address for public ones."""


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder with every file, by one command."""
    folder, cache = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("hub")
    with serving() as server:
        changes: dict[str, Row] = {}
        elsewhere = server.url.replace("127.0.0.1", "localhost")  # another host than the hub's
        for name, (published, rows) in HUB.items():
            changes[name] = {"rows": len(rows)}
            source = FILES[name].source
            if published and isinstance(source, Hub):
                server.add(source.pin, published)
        for name, (content, rows) in ADDRESSES.items():
            server.files[f"/{name}.json"] = content
            address = {"url": f"{elsewhere}/{name}.json", "sha256": hashlib.sha256(content).hexdigest()}
            changes[name] = {"rows": len(rows), **address}
        environment = {
            "HF_ENDPOINT": server.url,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(cache),
            "HF_HUB_DISABLE_XET": "1",
        }
        subprocess.run(
            [sys.executable, "-c", GET, json.dumps(changes), str(folder)],
            env=os.environ | environment, cwd=ROOT, check=True,
        )  # fmt: skip
        yield folder


def test_every_source_is_played() -> None:
    assert {*HUB, *ADDRESSES} == {*FILES}


@pytest.mark.parametrize("name", FILES)
def test_published_rows_become_rows_of_the_folder(fetched: Path, name: str) -> None:
    file = fetched / FILES[name].path
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert rows == ({**HUB, **ADDRESSES})[name][1]
    assert {*FILES[name].fields} <= {*rows[0]}


@pytest.mark.parametrize("task", sorted(filter(data_files, TASKS)))
def test_a_benchmark_reads_the_folder(fetched: Path, task: str) -> None:
    row = documents(task, data_dir=str(fetched))[0]
    expected = {"templama": "FC Ulm", "mawps": "9.0", "svamp": "3.0", "asdiv": "9", "lama_squad": "blue"}
    passage = "old" if "q" in task and task.startswith(("mlqa", "xquad")) else "Ulm"
    answers = row.get("answers") or [row.get("answer")]
    assert task == "wikitext_perplexity" or answers[0] == expected.get(task, passage)


def test_the_experiment_reads_the_folder(fetched: Path) -> None:
    sources = itertools.takewhile(lambda source: source[0] != "summaries", headline.wikipedia(fetched))
    texts = {name: [text.strip() for _, text in pairs] for name, pairs in sources}
    assert texts == {
        "squad_train": ["It is old."], "2wiki": ["Ulm is old."], "trex": ["Bell is from Ulm.", "Her town is Ulm."],
        "nq": ["Ulm is old."], "pile_wiki": ["Ulm is old."],
    }  # fmt: skip
    assert [row["text"] for row in headline.dates(fetched)][-1] == "It was Friday."


def test_headline_names_what_the_experiment_reads() -> None:
    parts = validate(compose("report", ["experiment=headline"])).run.experiments
    asked = [compose("evaluate", [f"experiment={part}"]).benchmarks for part in parts]
    benchmarks = {*itertools.chain(*asked)} & {*filter(data_files, TASKS)}
    files = {file.name for file in FILES.values() if benchmarks & {*file.tasks}}
    assert {file.name for file in files_named(["headline"])} == {*HEADLINE_TEXTS, *files}


def test_several_benchmarks_name_a_file_once() -> None:
    assert [file.name for file in files_named(["mlqa_all_en_de", "temporal"])] == [
        "mlqa_de",
        "mlqa_en",
        "templama",
    ]


@pytest.fixture
def server() -> Iterator[HubServer]:
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def downloads(tmp_path_factory: pytest.TempPathFactory, monkeypatch: Patch) -> Path:
    """The folder of downloads."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TOOLFORMER_CACHE", str(cache))
    return cache / "downloads"


def passages(server: HubServer, content: bytes = b"", **others: Any) -> DataFile:
    """Passages at an address of the server, of two rows."""
    server.files["/train.jsonl"] = content or (json.dumps(TITLED).encode() + b"\n") * 2
    digest = hashlib.sha256(server.files["/train.jsonl"]).hexdigest()
    source = Address(f"{server.url}/train.jsonl", rows_of, others.pop("sha256", digest))
    return replace(FILES["2wiki_passages"], **{"rows": 2, "source": source, **others})


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_an_interrupted_download_is_resumed(server: HubServer, tmp_path: Path, downloads: Path) -> None:
    file, server.breaks_after = passages(server), 50
    with pytest.raises(
        UserError, match=r"2wiki_passages: http://127.* cannot be read .*run the same command again"
    ):
        fetch(file, tmp_path)
    assert files_in(tmp_path) == [] and [Path(name).suffix for name in files_in(downloads)] == [".part"]
    for _ in range(2):
        assert fetch(file, tmp_path) == tmp_path / "corpus_wikipedia" / "passages_2wiki.jsonl.gz"
    assert server.asked == [("/train.jsonl", None), ("/train.jsonl", "bytes=50-")]
    assert files_in(tmp_path) == ["passages_2wiki.jsonl.gz"]
    assert describe(file, tmp_path) == "2 rows, 1 kB, other than measured"
    again = replace(file, measured=file.digest(row for _, row in rows_of(fetch(file, tmp_path))))
    assert describe(again, tmp_path) == "2 rows, 1 kB, as measured"


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"", lambda data: b"{oops"])
def test_a_damaged_file_is_fetched_again(server: HubServer, tmp_path: Path, damage: Any, caplog: Log) -> None:
    path = fetch(passages(server), tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert fetch(passages(server), tmp_path) == path and path.read_bytes() == whole
    assert "2wiki_passages: damaged, fetched again: " in caplog.text


def test_a_file_of_other_rows_stays(server: HubServer, tmp_path: Path) -> None:
    path = fetch(passages(server), tmp_path)
    path.write_bytes(gzip.compress(b'{"id": "mine", "text": "mine"}\n'))
    fetch(passages(server), tmp_path)
    assert describe(passages(server), tmp_path) == "1 rows, 1 kB; expected 2 rows"


def test_links_planted_in_a_shared_folder_are_not_followed(
    server: HubServer, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    mine = tmp_path_factory.mktemp("mine")
    (tmp_path / ".downloads").symlink_to(mine)
    (tmp_path / "corpus_wikipedia").symlink_to(mine)
    with pytest.raises(
        UserError, match=r"corpus_wikipedia: a link leads out of .*, so nothing is written; remove the link"
    ):
        fetch(passages(server), tmp_path)
    (tmp_path / "corpus_wikipedia").unlink()
    fetch(passages(server), tmp_path)
    assert not list(mine.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": "0" * 64}, "has SHA-256 .*, expected 0000"),
        ({"rows": 3}, "has 2 rows, expected 3: .*; nothing is written"),
        ({"content": b'{"title": "q"}\nnot JSON'}, "line 1: no text in field `text`"),
        ({"content": b"[" * 100_000}, "malformed JSON|one JSON array"),
        ({"source": Address("http://example.org/train.jsonl", rows_of)}, "is not https; nothing is fetched"),
        ({"source": Address("file:///etc/passwd", rows_of)}, "is not https; nothing is fetched"),
    ],
)
def test_a_source_that_is_not_as_published_leaves_nothing(
    server: HubServer, tmp_path: Path, changes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        fetch(passages(server, **changes), tmp_path)
    assert "\n" not in str(caught.value) and files_in(tmp_path) == []


def test_redirects_missing_files_and_endless_ones_are_refused(
    server: HubServer, tmp_path: Path, monkeypatch: Patch
) -> None:
    file = passages(server)
    server.redirects["/train.jsonl"] = f"{server.url}/elsewhere"
    with pytest.raises(UserError, match="answers HTTP 302"):
        fetch(file, tmp_path)
    server.redirects.clear()
    monkeypatch.setattr(fetching, "MOST_BYTES", 20)
    with pytest.raises(UserError, match="is larger than 0 MiB"):
        fetch(file, tmp_path)
    server.files.clear()
    with pytest.raises(UserError, match="answers HTTP 404"):
        fetch(file, tmp_path)
    assert files_in(tmp_path) == []


def test_a_file_that_fails_does_not_stop_the_others(
    server: HubServer, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setitem(FILES, "2wiki_passages", passages(server))
    monkeypatch.setitem(FILES, "nq_passages", passages(server, name="nq_passages", sha256="0" * 64))
    assert main(["data", "get", "nq_passages", "2wiki_passages", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert f"2wiki_passages: {tmp_path}/corpus_wikipedia/passages_2wiki.jsonl.gz: 2 rows" in captured.out
    assert "toolformer: data: nq_passages: " in captured.err


def test_a_folder_is_listed(fetched: Path, capsys: Capture) -> None:
    assert main(["data", "list", str(fetched)]) == 0
    table = capsys.readouterr().out
    assert (
        all(name in table for name in FILES)
        and "CC BY-NC 4.0" in table
        and "1 rows, 1 kB; expected" in table  # and in a line below, as the cell is folded: 1,000 rows
    )
    assert main(["data", "list"]) == 0
    assert "2,373" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "svmp", "DIR"], "there is no data set 'svmp' (did you mean svamp?)"),
        (["get", "svamp"], "name a data set and a folder"),
        (["list", "a", "b"], "name one folder"),
        (["list", "nowhere"], "there is no folder nowhere"),
        (["fetch"], "invalid choice"),
    ],
)
def test_bad_arguments_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and not list(tmp_path.iterdir())


def test_the_page_names_every_file() -> None:
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for file in FILES.values():
        assert f"`{file.path}`" in page and str(file.source) in page, file.name
        assert not file.note or file.note in " ".join(page.split()), file.name
