"""Conventions: import directions, the file tree of CONTRIBUTING.md, the lock of versions, what is imported."""

import ast
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import SimpleNamespace

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


def test_imports_go_downward_only(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    kept = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)
    assert kept, capsys.readouterr().out


def imported(path: Path) -> set[str]:
    """Top-level names of what a file imports anywhere in it."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    return {name.split(".")[0] for name in names}


def test_every_import_is_a_declared_dependency() -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    declared = {canonicalize_name(Requirement(line).name) for group in groups for line in group}
    distributions = packages_distributions()
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = set().union(*map(imported, modules)) - {*sys.stdlib_module_names, *PACKAGES, "tests"}
    missing = {
        name for name in names if not {*map(canonicalize_name, distributions.get(name, [name]))} & declared
    }
    assert not missing, f"imported but not in pyproject.toml: {sorted(missing)}"


def test_tests_share_builders_not_test_modules() -> None:
    """What several tests need is in a `build.py`, a server or the reference; a package's builders are for its own tests."""
    wrong = []
    for path in (ROOT / "tests").rglob("*.py"):
        package_of_test = ".".join(path.parent.relative_to(ROOT).parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("tests"):
                continue
            package, _, name = str(node.module).rpartition(".")
            if (
                name == "conftest"
                or name.startswith("test_")
                or (name == "build" and not f"{package_of_test}.".startswith(f"{package}."))
            ):
                wrong.append(f"{path.relative_to(ROOT)} imports {node.module}")
    assert not wrong


def test_names_of_tests_have_at_most_60_characters() -> None:
    nodes = (
        ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for path in (ROOT / "tests").rglob("test_*.py")
    )
    names = [node.name for tree in nodes for node in tree if isinstance(node, ast.FunctionDef)]
    assert not [name for name in names if name.startswith("test_") and len(name) > 60]


LOCK = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def test_every_dependency_is_locked_within_its_range() -> None:
    for line in LOCK:  # exact and portable
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!]*", line), line
    pins = (pin.partition("==") for pin in LOCK)
    locked = {canonicalize_name(name): version for name, _, version in pins if version}
    for line in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]):
        requirement = Requirement(line)
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in constraints.txt"
        assert requirement.specifier.contains(version), f"constraints.txt locks {requirement.name} {version}"


def tree_paths(page: str) -> list[str]:
    """Every path in a page's file tree: one name per line, two blanks, what it is; indented below a folder."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    (tree,) = (block for block in blocks if "\ntoolformer/ " in block)
    paths, above = [], ""
    for indent, name in re.findall(r"^( *)(\S+)  ", tree, flags=re.MULTILINE):
        above = above if indent else name
        paths.append(above + name if indent else name)
    return paths


def test_the_file_tree_names_every_package() -> None:
    named = set(tree_paths((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    absent = sorted(path for path in named if not (ROOT / path).exists())
    assert not absent, f"named in the tree but not there: {absent}"
    folders = {f"{path.name}/" for path in ROOT.iterdir() if path.is_dir() and not NOT_OURS.search(path.name)}
    loose = {f"toolformer/{path.name}" for path in (ROOT / "toolformer").glob("[a-z]*.py")}
    inits = (ROOT / "toolformer").glob("*/__init__.py")
    packages = {f"toolformer/{path.parent.name}/" for path in inits if not path.parent.is_symlink()}
    assert len(loose) <= 7 and len(packages) <= 14
    missing = sorted((folders | loose | packages) - named)
    assert not missing, f"not named in the tree of CONTRIBUTING.md: {missing}"


def test_the_set_up_keeps_the_extras_of_before(tmp_path: Path) -> None:
    """A clone's set-up, with an environment that has only its stamp."""
    for name in ("pyproject.toml", "setup.py", "constraints.txt", "scripts/setup.py", ".venv/bin/python"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"" if ".venv" in name else (ROOT / name).read_bytes())
    setup = SimpleNamespace(**runpy.run_path(str(tmp_path / "scripts" / "setup.py")))
    assert not setup.is_done(set())
    setup.STAMP.write_text(f"{setup.fingerprint()} mcp ray")
    assert setup.is_done(set()) and setup.is_done({"ray", "mcp"}) and not setup.is_done({"mcp", "lora"})
    setup.main("mcp,ray")  # nothing to do
    with pytest.raises(SystemExit, match="there is no extra mpc; known: dev, "):
        setup.main("ray", "mpc")
    setup.STAMP.write_text(f"{setup.fingerprint()} dev")
    assert setup.is_done({"mcp"})
    setup.STAMP.write_text("of another pyproject.toml mcp")
    assert not setup.is_done({"mcp"})


def test_an_old_python_is_told_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    answer = subprocess.run(["make", "setup", f"PYTHON={old}"], cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.splitlines()[0].startswith("setup: Python 3.11 or newer is needed")
