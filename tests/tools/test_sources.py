"""What tells one state of a user's tool from another: modules beside it, files of its server, its variables."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

import pytest

from toolformer import build
from toolformer.config import ToolConfig, compose, validate
from toolformer.tools import sources
from toolformer.tools.runtime import ToolRuntime

TOOLS = '''
import json
import units
from package.deep import convert


class Tools:
    class Valves:
        def __init__(self, key: str = "") -> None:
            self.key = key

    def shout(self, text: str) -> str:
        """Write a text in capitals.

        :param text: any

        >>> shout("a")
        'A'
        """
        return text.upper()
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {
        "shouting.py": TOOLS,
        "units.py": "import rates\n",
        "rates.py": "import shouting\n",
        "package/__init__.py": "",
        "package/deep.py": "from . import near\nfrom .. import absent\n\ndef convert():\n    from .late import x\n",
        "package/near.py": "this is no Python",
        "package/late.py": "x = 1\n",
        "other.py": "",
        "server.py": "import rates\n",
        "server.json": "{}",
        "server.log": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_a_file_imports_beside_it(place: Path) -> None:
    found = [file.relative_to(place).as_posix() for file in sources.imported_beside(place / "shouting.py")]
    assert found == [
        "package/__init__.py", "package/deep.py", "package/late.py", "package/near.py", "rates.py", "units.py",
    ]  # fmt: skip
    assert sources.imported_beside(place / "package" / "late.py") == []
    assert sources.imported_beside(place / "absent.py") == []


def test_what_a_server_is_started_with(place: Path) -> None:
    arguments = {
        "command": "python",
        "args": ["server.py", "--set=server.json", "server.log", "x" * 5000, "\0", "."],
    }
    found = {name for name, _ in sources.of_server(arguments)}
    assert {"rates.py", "server.json", "server.py"} <= found and "server.log" not in found
    assert (
        sources.of_server({"command": "python", "args": ["~nobody-at-all/x", "--set=~nobody-at-all/x"]}) == []
    )


def test_a_package_that_is_installed_counts_by_its_version(place: Path) -> None:
    """And none of what is installed beside it is read."""
    package = place / "lib" / "site-packages" / "own"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "tools.py").write_text("import other\nfrom own import near\n")
    (package.parent / "other.py").write_text("")
    assert sources.imported_beside(package / "tools.py") == []
    assert [name for name, _ in sources.told(package / "tools.py")] == ["own"]
    assert sources.told(Path(pytest.__file__)) == [("pytest", f"pytest {pytest.__version__}")]
    assert sources.told(Path(json.__file__)) == [("python", platform.python_version())]
    (package.parent / "mine.py").write_text("import own.tools")
    (place / "lib" / "mine.py").symlink_to(package.parent / "other.py")
    (place / "lib" / "uses.py").write_text("import mine")
    assert sources.imported_beside(place / "lib" / "uses.py") == []


def test_a_tool_is_the_same_elsewhere(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "place"
    shutil.copytree(place, elsewhere)
    assert sources.told(place / "shouting.py") == sources.told(elsewhere / "shouting.py")
    here, there = (
        build._files(
            {"command": "python", "args": [str(one / "server.py")], "log_path": str(one / "other.py")}
        )
        for one in (place, elsewhere)
    )
    assert here == there and len(here) > 3


@pytest.mark.parametrize(
    "configured",
    [{"path": "x" * 300}, {"a_path": "x" * 300}, {"path": "~nobody-at-all"}, {"function": "time:sleep"}],
)
def test_a_text_that_names_no_file(configured: dict[str, str]) -> None:
    assert build._files(configured) == []


def changed(place: Path, name: str) -> None:
    file = place / name
    file.write_text(file.read_text() + "\n# other\n")


def test_other_files_make_another_tool(place: Path) -> None:
    function = ToolConfig(implementation={"function": f"{place / 'shouting.py'}:Tools.shout"})
    server = ToolConfig(implementation={"command": "python", "args": ["server.py", "--set=server.json"]})
    language = ToolConfig(implementation={"identifier": {"path": str(place / "server.log")}, "path": "/v1/x"})
    for tool, decides, other in (
        (function, "package/late.py", "other.py"),
        (server, "server.py", "other.py"),
        (server, "server.json", "server.log"),
        (server, "rates.py", "other.py"),
        (language, "server.log", "other.py"),
    ):
        before = build.tool_identity(tool)
        changed(place, other)
        assert build.tool_identity(tool) == before
        changed(place, decides)
        assert build.tool_identity(tool) != before


def test_another_value_of_a_variable_makes_another_cache(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "units.py").write_text("")
    (place / "package" / "deep.py").write_text("def convert(): ...\n")
    monkeypatch.syspath_prepend(str(place))
    words = ["tool_sources=[{python: shouting.py, valves: {key: $MY_TOOLS_KEY}}]", "tools=[shout]"]
    names = []
    for value in ("hunter2", "swordfish", "hunter2"):
        monkeypatch.setenv("MY_TOOLS_KEY", value)
        tool = build.tools(validate(compose("generate", words)))["shout"]
        assert isinstance(tool, ToolRuntime) and tool.cache is not None
        names.append(tool.cache.path.name)
    assert names[0] == names[2] != names[1] and not any("hunter2" in name for name in names)


def test_variables_are_told_apart_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "a")
    monkeypatch.setenv("TWO", "b")
    assert sources.variables([{"a": 5, "b": ["$$ONE", None]}, ()]) == ""
    before = sources.variables({"a": "Bearer $ONE", "b": ["${TWO}"]})
    assert before == sources.variables(["$TWO", "$ONE"]) != sources.variables("$ONE")
    monkeypatch.setenv("ONE", "ab")
    monkeypatch.setenv("TWO", "")
    assert sources.variables(["$ONE", "$TWO"]) != before
