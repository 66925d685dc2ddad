"""Tools as configuration makes them: endpoints, limits, caches, and what of a tool its cached results depend on."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from tests.build import OTHER_DOCUMENT, German, Patch
from tests.servers.completions import Completions
from toolformer.errors import UserError
from toolformer.jobs import instantiate, steps
from toolformer.jobs.config import Config, compose, effective, validate
from toolformer.tools.retrieval.bm25 import BM25
from toolformer.tools.runtime import ToolRuntime
from toolformer.tools.search import WikiSearch

CONFIGURED = {"qa": "generate", "translation": "translator.generate"}


@pytest.mark.parametrize("key", CONFIGURED)
def test_a_tool_points_to_an_endpoint_by_configuration(
    key: str, server: Completions, articles_file: Path, tmp_path: Path
) -> None:
    place = f"tool.{key}.implementation.{CONFIGURED[key]}"
    words = [f"tools=[{key}]", f"tool@tool.{key}={key}_endpoint", f"paths.root={tmp_path / 'runs'}"]
    words += [f"{place}.url={server.url}", f"{place}.request={{seed: 3}}"]
    if key == "qa":
        words.append(f"tool.qa.implementation.retriever.articles_path={articles_file}")
    config = validate(compose("generate", words))

    def tool_of(**settings: object) -> ToolRuntime:
        """The tool with these settings of its generator, as another process would make it."""
        changed = copy.deepcopy(config)
        implementation = changed.tool[key].implementation
        (implementation.get("translator") or implementation)["generate"].update(settings)
        tool = instantiate.tools(changed)[key]
        assert isinstance(tool, ToolRuntime)
        if key == "translation":
            tool.tool.identifier = German()  # type: ignore[attr-defined]
        return tool

    with pytest.raises(UserError, match=f"^{place}: url and model are missing"):
        tool_of()
    tool = tool_of(model="tiny")
    assert tool.is_remote
    server.answer = {"choices": [{"text": " wax. \nnext"}]}
    asked = ["Who takes wax from hives?"] * 2
    assert {one.text for one in tool.run(asked, [OTHER_DOCUMENT] * 2)} == {"wax" if key == "qa" else "wax."}
    assert len(server.payloads) == 1 and server.payloads[0]["seed"] == 3
    assert json.dumps(server.payloads[0]["prompt"]).count("Who takes wax") == 1
    # Another process, or the same command again, asks nobody; another model is another tool.
    for other, requests in (({"model": "tiny", "concurrency": 9}, 1), ({"model": "larger"}, 2)):
        assert tool_of(**other).run(asked[:1], [OTHER_DOCUMENT])[0].text
        assert len(server.payloads) == requests


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return validate(compose("generate", [f"paths.root={tmp_path / 'runs'}"]))


def cache_name(config: Config, key: str) -> str | None:
    tool = instantiate.tools(config, [key])[key]
    assert isinstance(tool, ToolRuntime)
    return tool.cache.path.name if tool.cache else None


LOOKUP = """
from typing import Annotated

from toolformer.step import NOTHING, ModelName
from toolformer.tools.base import Tool

class Lookup(Tool):
    name = "QA"
    def __init__(self, words=3, version="", model: Annotated[str, ModelName()] = "", log: Annotated[str, NOTHING] = "", **_):
        self.version = version
    def run(self, inputs, documents):
        return []
"""


def test_what_cached_results_depend_on(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments, files, model folders and a version; not how calls are proposed. Cheap tools are not cached."""
    names = [cache_name(config, key) for key in ("calculator", "calendar", "search", "qa")]
    assert names[:2] == [None, None] and all(names[2:]) and names[2] != names[3]
    assert not (tmp_path / "runs").exists(), "nothing is written before there is a result"
    (tmp_path / "my_lookup.py").write_text(LOOKUP)
    monkeypatch.syspath_prepend(str(tmp_path))
    model, articles = tmp_path / "model", tmp_path / "articles.json"
    model.mkdir()
    (model / "config.json").write_text("{}")
    articles.write_text("[]")
    arguments = {"_target_": "my_lookup.Lookup", "model": str(model), "articles_path": str(articles)}
    arguments |= {"words": "3", "version": "1"}
    config.tool["qa"].implementation = arguments
    seen = [cache_name(config, "qa")]
    others = {"samples": 9, "filter_threshold": 0.1, "workers": 2, "timeout": 5.0, "tries": 2}
    config.tool["qa"] = replace(config.tool["qa"], **others)
    assert cache_name(config, "qa") == seen[0]
    arguments["log"] = "calls.log"
    assert cache_name(config, "qa") == seen[0]
    for change in (
        lambda: arguments.update(words="4"),
        lambda: articles.write_text('[{"title": "A", "extract": "B"}]'),
        lambda: (model / "config.json").write_text('{"layers": 2}'),
        lambda: arguments.update(version="2"),
    ):
        change()
        seen.append(cache_name(config, "qa"))
    assert None not in seen and len(set(seen)) == 5
    arguments["version"] = ""
    assert cache_name(config, "qa") is None, "a tool of the user's is cached only under a version"


@pytest.mark.parametrize("kind", [WikiSearch, BM25])
def test_cached_results_depend_on_the_version_of_each_class(
    kind: type, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cache_name(config, "search")
    monkeypatch.setattr(kind, "VERSION", 99)
    assert cache_name(config, "search") not in (None, before)


def test_a_users_part_of_a_tool_has_no_version_of_ours(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subclass of ours is the user's: its results may differ."""
    code = "from toolformer.tools.retrieval.bm25 import BM25\nclass Mine(BM25):\n    pass\n"
    (tmp_path / "my_retriever.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    config.tool["search"].implementation["retriever"] = {"_target_": "my_retriever.Mine"}
    assert cache_name(config, "search") is None


RETRIEVER = "tool.search.implementation.retriever"
SERVED = [f"retriever@{RETRIEVER}=http", f"{RETRIEVER}.url=http://a:1/retrieve"]
READER = "tool.qa.implementation.generate"
READ = ["tool@tool.qa=qa_endpoint", f"{READER}.url=http://a:1/v1/completions", f"{READER}.model=m"]
TRANSLATED = ["tool@tool.translation=translation_nllb", "tool.translation.implementation.translator.model=n"]


def annotation_key(tool: str, *words: str) -> str:
    config = effective(validate(compose("generate", [f"tools=[{tool}]", *words])), "generate")
    return steps.annotate(config, tool).key()


@pytest.mark.parametrize(
    ("tool", "base", "change", "decides"),
    [
        ("search", SERVED, f"{RETRIEVER}.timeout=9", False),
        ("search", SERVED, f"{RETRIEVER}.url=http://b:1/retrieve", True),
        ("search", SERVED, f"{RETRIEVER}.topk=20", True),
        ("qa", READ, f"{READER}.url=http://b:2/v1/completions", False),
        ("qa", READ, f"{READER}.url=http://a:1/v1/chat/completions", True),
        ("qa", READ, f"{READER}.model=n", True),
        ("qa", READ, f"{READER}.concurrency=9", False),
        ("qa", READ, "+tool.qa.inference.generate.timeout=9", False),
        ("translation", TRANSLATED, "tool.translation.implementation.translator.device=cpu", False),
        ("translation", TRANSLATED, "tool.translation.implementation.translator.dtype=float32", True),
    ],
)
def test_which_arguments_decide_an_annotation(tool: str, base: list[str], change: str, decides: bool) -> None:
    assert (annotation_key(tool, *base) != annotation_key(tool, *base, change)) is decides


def test_the_content_of_an_index_decides_and_not_its_place(tmp_path: Path) -> None:
    first, copied = tmp_path / "first", tmp_path / "copied"
    first.mkdir()
    (first / "index.json").write_text("{}")
    copytree(first, copied)
    one, other = (annotation_key("search", f"{RETRIEVER}.index_path={path}") for path in (first, copied))
    assert one == other != annotation_key("search")
    (copied / "index.json").write_text("[]")
    assert annotation_key("search", f"{RETRIEVER}.index_path={copied}") != one


def test_a_function_that_was_moved_is_the_same_tool(tmp_path: Path) -> None:
    code = 'def double(number: int) -> int:\n    """Double a number.\n\n    >>> double(2)\n    4\n    """\n    return 2 * number\n'
    keys = []
    for folder, text in (("a", code), ("b", code), ("c", code.replace("2 *", "3 *"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(text)
        keys.append(annotation_key("double", f"tool_sources=[{tmp_path}/{folder}/mine.py]"))
    assert keys[0] == keys[1] != keys[2]


DATA = """
import csv
from pathlib import Path

ROWS = list(csv.DictReader((Path(__file__).parent / "data" / "stock.csv").open()))

def shelf(item: str) -> str | None:
    \"\"\"Look up a shelf.

    >>> shelf("hammer")
    'A1'
    \"\"\"
    text = Path(__file__).with_name("notes.txt").read_text()
    return next((row["shelf"] for row in ROWS if row["item"] == item), text)
"""


@pytest.mark.parametrize("changed", [None, "data/stock.csv", "notes.txt", "extra/more.bin", "unread.csv"])
def test_the_data_of_a_function_decides(tmp_path: Path, changed: str | None) -> None:
    keys = []
    for folder in ("first", "second"):
        for name in ("data/stock.csv", "notes.txt", "extra/more.bin", "unread.csv"):
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("item,shelf\nhammer,A1\n")
        (tmp_path / folder / "shop.py").write_text(DATA)
        if folder == "second" and changed:
            (tmp_path / folder / changed).write_text("item,shelf\nhammer,B2\n")
        source = f"{{python: {tmp_path}/{folder}/shop.py, files: [{tmp_path}/{folder}/extra]}}"
        keys.append(annotation_key("shelf", f"tool_sources=[{source}]"))
    assert (keys[0] != keys[1]) is (changed not in (None, "unread.csv"))


@pytest.mark.parametrize(
    ("expression", "file"),
    [
        ('(Path(__file__).parent / "data").iterdir()', "data/a.csv"),
        ('os.listdir("data/tables")', "data/tables/a.csv"),
        ('glob.glob(f"{os.path.dirname(__file__)}/*.csv")', "stock.csv"),
        ('Path(__file__).parent.glob("*.csv")', "stock.csv"),
        ('Path(__file__).with_suffix(".csv").open()', "shop.csv"),
        ('open(__file__.replace(".py", ".json"))', "shop.json"),
        ('open(f"{os.path.dirname(__file__)}/stock.csv")', "stock.csv"),
        ('open(os.path.dirname(__file__) + "/data/stock.csv")', "data/stock.csv"),
        ('open(os.fsencode(__file__).replace(b"shop.py", b"stock.csv"))', "stock.csv"),
        ('Path(__file__).with_name("stock").with_suffix(".csv").open()', "stock.csv"),
    ],
)
def test_data_that_a_source_lists_or_names_after_itself_decides(
    tmp_path: Path, expression: str, file: str
) -> None:
    keys = []
    for folder in ("first", "second"):
        path = tmp_path / folder / file
        path.parent.mkdir(parents=True)
        path.write_text(folder)
        (tmp_path / folder / "unread.txt").write_text(folder)
        reading = f"    return str(list({expression}))\n"
        (tmp_path / folder / "shop.py").write_text(
            f'def shelf(item: str) -> str:\n    """Look up.\n\n    >>> shelf("a")\n    1\n    """\n{reading}'
        )
        keys.append(annotation_key("shelf", f"tool_sources=[{tmp_path}/{folder}/shop.py]"))
    assert keys[0] != keys[1]


def test_data_in_the_working_directory_decide(tmp_path: Path, monkeypatch: Patch) -> None:
    keys = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        (folder / "tools").mkdir(parents=True)
        (folder / "stock.csv").write_text(folder.name)
        (folder / "tools" / "shop.py").write_text(
            'def shelf(item: str) -> str:\n    """Look up.\n\n    >>> shelf("a")\n    1\n    """\n    return open("stock.csv").read()\n'
        )
        monkeypatch.chdir(folder)
        keys.append(annotation_key("shelf", "tool_sources=[tools/shop.py]"))
    assert keys[0] != keys[1]


def test_a_folder_that_a_source_only_names_is_no_data(tmp_path: Path) -> None:
    keys = []
    for folder in ("first", "second"):
        (tmp_path / folder / "data").mkdir(parents=True)
        (tmp_path / folder / "data" / "a.csv").write_text(folder)
        (tmp_path / folder / "shop.py").write_text(
            'def shelf(item: str) -> str:\n    """Look up.\n\n    >>> shelf("a")\n    1\n    """\n    return "data"\n'
        )
        keys.append(annotation_key("shelf", f"tool_sources=[{tmp_path}/{folder}/shop.py]"))
    assert keys[0] == keys[1]


def test_the_code_of_a_tool_is_that_which_runs(tmp_path: Path) -> None:
    """Edited during a run, it is another tool for the next command only."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "stock.csv").write_text("item,shelf\n")
    (tmp_path / "shop.py").write_text(DATA)
    before = annotation_key("shelf", f"tool_sources=[{tmp_path}/shop.py]")
    (tmp_path / "shop.py").write_text(DATA + "\n# edited\n")
    assert annotation_key("shelf", f"tool_sources=[{tmp_path}/shop.py]") == before


def test_a_missing_file_of_a_tool_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "stock.csv").write_text("item,shelf\n")
    (tmp_path / "shop.py").write_text(DATA)
    source = f"tool_sources=[{{python: {tmp_path}/shop.py, files: [{tmp_path}/absent.csv]}}]"
    config = validate(compose("generate", ["tools=[shelf]", source]))
    with pytest.raises(UserError, match=r"tool.shelf.implementation.files: .*absent.csv"):
        instantiate.tools(config)


def test_all_arguments_of_a_users_class_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they mean is unknown."""
    (tmp_path / "my_timed_lookup.py").write_text(LOOKUP)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["tool.qa.implementation={_target_:my_timed_lookup.Lookup}", "+tool.qa.implementation.timeout="]
    keys = {annotation_key("qa", words[0], f"{words[1]}{seconds}") for seconds in (1, 2)}
    assert len(keys) == 2
