"""Sets up `.venv` with plain pip: PyTorch for this machine first, then the packages that constraints.txt locks.

`python scripts/setup.py` installs what the pipeline needs (`make demo`), `python scripts/setup.py dev` also what the tests
need (`make test`), `python scripts/setup.py mcp ray` the extras of pyproject.toml that are named. What was named before
stays. A second run only compares a hash. Uses the standard library alone, since nothing is installed yet.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
STAMP = ENVIRONMENT / "setup-complete"
CONSTRAINTS = ROOT / "constraints.txt"
INPUTS = (ROOT / "pyproject.toml", ROOT / "setup.py", CONSTRAINTS, Path(__file__).resolve())

MINIMUM_PYTHON = (3, 11)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of builds without CUDA; its address is written here alone."""

PROBE_SECONDS = 15
"""How long an index that does not answer may hold up the set-up."""


def fingerprint() -> str:
    """Changes when anything but the extras changes that decides what is installed, and where."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in INPUTS:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def stamp() -> tuple[str, set[str]]:
    """The fingerprint and the extras of the last set-up that was finished; nothing if there is none."""
    words = (
        STAMP.read_text(encoding="utf-8").split() if STAMP.exists() and environment_python().exists() else []
    )
    return "".join(words[:1]), set(words[1:])


def is_done(extras: set[str]) -> bool:
    """Whether the environment has all packages of these extras; the one for tests has those of any."""
    made_from, there = stamp()
    return made_from == fingerprint() and ("dev" in there or extras <= there)


def environment_python() -> Path:
    folder = "Scripts" if os.name == "nt" else "bin"
    return ENVIRONMENT / folder / "python"


def install(*arguments: str, quiet: bool = False) -> bool:
    """Runs the environment's `pip install`, which prints only what is wrong; quiet: nothing, for a try that may fail."""
    # Python compiles what is really imported at its first import; compiling all of it here takes far longer.
    command = [str(environment_python()), "-P", "-m", "pip", "-qq", "--disable-pip-version-check", "install"]
    silence = subprocess.DEVNULL if quiet else None
    done = subprocess.run([*command, "--no-compile", *arguments], stdout=silence, stderr=silence, check=False)
    return done.returncode == 0


def say(message: str) -> None:
    print(f"setup: {message}", flush=True)


def fail(message: str) -> NoReturn:
    sys.exit(f"setup: {message}")


def has_nvidia_gpu() -> bool:
    """Whether a driver answers for at least one GPU, not only whether the program is there."""
    if shutil.which("nvidia-smi") is None:
        return False
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and "GPU " in answer.stdout


def cpu_index_offers(requirement: str) -> bool:
    """Ask the CPU index for a version with pip itself, so that the user's proxy and certificates hold."""
    name, version = requirement.split("==")
    command = [str(environment_python()), "-P", "-m", "pip", "index", "versions", name]
    command += ["--index-url", CPU_INDEX, "--retries", "0", "--timeout", "5"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return version in re.split(r"[\s,()]+", answer.stdout)


def create_environment() -> None:
    python = environment_python()
    works = python.exists() and (
        subprocess.run(
            [str(python), "-c", f"import pip, sys; sys.exit(sys.version_info < {MINIMUM_PYTHON})"],
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
        == 0
    )
    if works:
        return
    say(f"creating {ENVIRONMENT} with Python {sys.version.split()[0]}")
    try:
        venv.create(ENVIRONMENT, clear=True, with_pip=True, symlinks=os.name != "nt")
    except (OSError, subprocess.CalledProcessError) as error:
        fail(
            f"cannot create {ENVIRONMENT} ({error}); install your system's venv package (Debian: python3-venv)"
        )


def install_torch() -> None:
    """The build that fits the machine: CUDA with a GPU; without one the CPU build, a tenth of the size.

    The CPU build is looked for in the folders that pip is configured with (`find-links`), then in PyTorch's own
    index. Where neither has it, the ordinary build serves too: it only takes longer and more disk.
    """
    match = re.search(r"^torch==\S+$", CONSTRAINTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if match is None:
        fail("constraints.txt does not pin torch; restore the line torch==VERSION")
    ordinary = match.group()
    cpu = f"{ordinary}+cpu"
    if sys.platform == "linux" and not has_nvidia_gpu():
        say(f"no NVIDIA GPU found, installing {cpu}")
        if install("--no-index", "--no-deps", cpu, quiet=True):
            return
        if cpu_index_offers(cpu):
            if install("--no-deps", "--index-url", CPU_INDEX, cpu):
                return
            fail(f"the download of {cpu} failed; run the same command again")
        say(f"{CPU_INDEX} does not answer or has no {cpu}: installing the ordinary build, several gigabytes")
    if not install("--constraint", str(CONSTRAINTS), ordinary):
        fail(f"pip could not install {ordinary}; see its message above, and run the same command again")


def main(*extras_named: str) -> None:
    if sys.version_info < MINIMUM_PYTHON:
        fail("Python 3.11 or newer is needed; name one with `make setup PYTHON=python3.12`")
    import tomllib

    extras = set(re.findall(r"[\w-]+", " ".join(extras_named)))
    known = tomllib.loads(INPUTS[0].read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    if unknown := extras - {*known}:
        fail(f"there is no extra {min(unknown)}; known: {', '.join(known)}")
    if is_done(extras):
        return
    extras |= stamp()[1] & {*known}
    create_environment()
    STAMP.unlink(missing_ok=True)
    failed = "pip failed; see its message above, and run the same command again: it resumes where it stopped"
    # Source packages are built with the locked setuptools: an isolated build would fetch another one for each.
    # It comes before torch, whose own needs are still missing then and would be complained of.
    if not install("--constraint", str(CONSTRAINTS), "setuptools"):
        fail(failed)
    install_torch()
    named = ",".join(sorted(extras))
    say(f"installing the other packages{named and f' and those of {named}'}, as locked in constraints.txt")
    package = f"{ROOT}[{named}]" if named else str(ROOT)
    # By path: otherwise Python would take a clone's folder of the same name for the package, where it is run beside it.
    by_path = ("--config-settings", "editable_mode=compat", "--editable", package)
    if not install("--constraint", str(CONSTRAINTS), "--no-build-isolation", *by_path):
        fail(failed)
    STAMP.write_text(" ".join([fingerprint(), *sorted(extras)]), encoding="utf-8")
    say(f"done; the programs are in {environment_python().parent}")


if __name__ == "__main__":
    main(*sys.argv[1:])
