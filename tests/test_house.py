"""The rules of the house: import directions, the README's file tree, the lock of versions, what is imported."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from importlinter.application.use_cases import lint_imports
from importlinter.configuration import configure
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = ("toolformer", "benchmarks")
# Made by tools and runs, not by us.
NOT_OURS = re.compile(r"^\.|^(build|dist|outputs|multirun|__pycache__|shared)$|\.egg-info$")


def project_modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


# --- imports -----------------------------------------------------------------


def test_imports_go_downward_only(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    kept = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)
    assert kept, capsys.readouterr().out


def third_party_imports() -> dict[str, Path]:
    """Top-level name of every third-party import anywhere in the packages, with a file that has it."""
    found: dict[str, Path] = {}
    for path in project_modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                continue
            for name in names:
                top = name.split(".")[0]
                if top not in sys.stdlib_module_names and top not in (*PACKAGES, "tests"):
                    found[top] = path.relative_to(ROOT)
    return found


def test_every_import_is_a_declared_dependency() -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    declared = {canonicalize_name(Requirement(line).name) for group in groups for line in group}
    distributions = packages_distributions()
    missing = {
        f"{name} ({path})"
        for name, path in third_party_imports().items()
        if not {canonicalize_name(d) for d in distributions.get(name, [name])} & declared
    }
    assert not missing, f"imported but not in pyproject.toml: {sorted(missing)}"


def test_the_ground_floor_is_light() -> None:
    """What the command line needs before a configuration is checked imports no heavy library."""
    code = (
        "import sys, toolformer, toolformer.calls, toolformer.documents, toolformer.assets, toolformer.cli;"
    )
    code += "print(sorted({'torch', 'transformers', 'mlflow', 'datasets', 'pandas'} & set(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


# --- versions ----------------------------------------------------------------


def locked_versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in pins}


@pytest.mark.parametrize("line", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]])
def test_every_dependency_is_locked_within_its_range(line: str) -> None:
    requirement = Requirement(line)
    locked = locked_versions().get(canonicalize_name(requirement.name))
    assert locked is not None, f"{requirement.name} is not in constraints.txt"
    assert requirement.specifier.contains(locked), f"constraints.txt locks {requirement.name} {locked}"


def test_the_lock_is_exact_and_portable() -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!]*", line), line


# --- the README's tree -------------------------------------------------------


def tree_paths(readme: str) -> Iterator[str]:
    """Every path in the README's file tree: the first code block that has a line starting with `toolformer/`.

    A line names one or more entries (`a.py b.py`, folders end with `/`), then says what they are. Depth is told by
    indentation, drawn or plain.
    """
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    tree = next((block for block in blocks if re.search(r"^\W*toolformer/", block, flags=re.MULTILINE)), "")
    parents: list[tuple[int, str]] = []
    for line in tree.splitlines():
        match = re.match(r"^([\s│├└─|`+-]*)(\S.*)$", line)
        if not match:
            continue
        indent = len(match.group(1))
        while parents and parents[-1][0] >= indent:
            parents.pop()
        base = parents[-1][1] if parents else ""
        for word in match.group(2).split():
            if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", word) or not ("/" in word or "." in word[1:]):
                break
            path = base + word
            yield path
            if word.endswith("/"):
                parents.append((indent, path))
                break


def test_a_tree_is_read_as_drawn() -> None:
    drawn = "# x\n```\na\n```\n```text\nconf/   Hydra. And more\n"
    drawn += "toolformer/\n├── calls.py  the notation\n└── tools/   one file per tool\n    ├── a.py b.py  two\nMakefile.x\n```\n"
    expected = ["conf/", "toolformer/", "toolformer/calls.py", "toolformer/tools/"]
    assert list(tree_paths(drawn)) == [
        *expected,
        "toolformer/tools/a.py",
        "toolformer/tools/b.py",
        "Makefile.x",
    ]


def test_the_trees_are_true_and_complete() -> None:
    readme, house = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/house.md"))
    assert len(readme.splitlines()) < 200
    short, named = set(tree_paths(readme)), set(tree_paths(house))
    assert short, "README.md has no file tree: a code block with a line that starts with toolformer/"
    absent = sorted(path for path in short | named if not (ROOT / path).exists())
    assert not absent, f"named in a tree but not there: {absent}"
    assert short < named, f"in README.md's tree, and not in that of docs/house.md: {sorted(short - named)}"

    folders = {f"{path.name}/" for path in ROOT.iterdir() if path.is_dir() and not NOT_OURS.search(path.name)}
    modules = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "toolformer").rglob("*.py")
        if path.name != "__init__.py"
    }
    packages = {f"{path.parent.relative_to(ROOT)}/" for path in (ROOT / "toolformer").rglob("__init__.py")}
    missing = sorted((folders | modules | packages) - named)
    assert not missing, f"not named in the tree of docs/house.md: {missing}"
